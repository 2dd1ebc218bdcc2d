#ifndef SOK_CC_BASE_PREFETCH_H_
#define SOK_CC_BASE_PREFETCH_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace sok {

// Rows of large tables lie anywhere in memory, and the hardware prefetcher cannot predict the next one. Loops
// over rows therefore prefetch every cache line of a row several rows ahead. A core keeps about this many
// lines in flight: with more, requests wait; with fewer, bandwidth stays unused.
constexpr int64_t kLinesInFlight = 64;
constexpr int64_t kFloatsPerLine = 16;

// How many rows ahead to prefetch, for rows of `floats` floats.
inline int64_t PrefetchDistance(int64_t floats) {
  const int64_t lines = (floats + kFloatsPerLine - 1) / kFloatsPerLine;
  return std::clamp<int64_t>(kLinesInFlight / std::max<int64_t>(lines, 1), 1, kLinesInFlight);
}

// Prefetches the cache line of `address`, for writing if kForWrite.
template <bool kForWrite = false>
inline void Prefetch(const void* address) {
  __builtin_prefetch(address, kForWrite ? 1 : 0);
  // GCC considers a function that only prefetches free of side effects, and removes calls to it.
  asm volatile("");
}

// Prefetches every cache line of the `floats` floats at `row`.
template <bool kForWrite = false>
inline void PrefetchFloats(const float* row, int64_t floats) {
  for (int64_t i = 0; i < floats; i += kFloatsPerLine) Prefetch<kForWrite>(row + i);
  // A row that does not start on a line boundary touches one more line.
  Prefetch<kForWrite>(row + floats - 1);
}

// Whether `floats` floats from `begin` on are whole cache lines.
inline bool IsWholeLines(const float* begin, int64_t floats) {
  return reinterpret_cast<uintptr_t>(begin) % (kFloatsPerLine * sizeof(float)) == 0 &&
         floats % kFloatsPerLine == 0;
}

// Copies a row of whole cache lines with non-temporal stores: the lines of `out` are not read first and do
// not stay in the caches.
inline void Stream(const float* in, int64_t dim, float* out) {
#ifdef __SSE2__
  for (int64_t c = 0; c < dim; c += 4) _mm_stream_ps(out + c, _mm_loadu_ps(in + c));
#else
  std::memcpy(out, in, static_cast<size_t>(dim) * sizeof(float));
#endif
}

// A thread that used Stream calls this before it signals other threads: non-temporal stores are not
// ordered with the stores after them.
inline void FinishStreaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace sok

#endif  // SOK_CC_BASE_PREFETCH_H_
