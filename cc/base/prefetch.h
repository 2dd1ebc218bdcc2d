#ifndef SOK_CC_BASE_PREFETCH_H_
#define SOK_CC_BASE_PREFETCH_H_

#include <algorithm>
#include <cstdint>

namespace sok {

// Rows of large tables lie anywhere in memory, and the hardware cannot guess the next one. Loops over rows
// therefore ask for every cache line of a row some rows before they come to it. A core keeps at most about
// this many lines on their way; more requests only wait, fewer leave bandwidth unused.
constexpr int64_t kLinesInFlight = 64;
constexpr int64_t kFloatsPerLine = 16;

// How many rows ahead to prefetch, for rows of `floats` floats.
inline int64_t PrefetchDistance(int64_t floats) {
  const int64_t lines = (floats + kFloatsPerLine - 1) / kFloatsPerLine;
  return std::clamp<int64_t>(kLinesInFlight / std::max<int64_t>(lines, 1), 1, kLinesInFlight);
}

// Asks for every line of `floats` floats from `row` on, to be read, and to be written too if kForWrite.
template <bool kForWrite = false>
inline void PrefetchFloats(const float* row, int64_t floats) {
  for (int64_t i = 0; i < floats; i += kFloatsPerLine) __builtin_prefetch(row + i, kForWrite ? 1 : 0);
  // A row that does not start on a line ends on one more.
  __builtin_prefetch(row + floats - 1, kForWrite ? 1 : 0);
}

}  // namespace sok

#endif  // SOK_CC_BASE_PREFETCH_H_
