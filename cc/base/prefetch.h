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

// Asks for the line of `address`, to be read, and to be written too if kForWrite.
template <bool kForWrite = false>
inline void Prefetch(const void* address) {
  __builtin_prefetch(address, kForWrite ? 1 : 0);
  // GCC takes a function that only prefetches for one without effect, and leaves out calls of it.
  asm volatile("");
}

// The same for every line of `floats` floats from `row` on.
template <bool kForWrite = false>
inline void PrefetchFloats(const float* row, int64_t floats) {
  for (int64_t i = 0; i < floats; i += kFloatsPerLine) Prefetch<kForWrite>(row + i);
  // A row that does not start on a line ends on one more.
  Prefetch<kForWrite>(row + floats - 1);
}

}  // namespace sok

#endif  // SOK_CC_BASE_PREFETCH_H_
