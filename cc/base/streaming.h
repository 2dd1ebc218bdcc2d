#ifndef SOK_CC_BASE_STREAMING_H_
#define SOK_CC_BASE_STREAMING_H_

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "cc/base/prefetch.h"

namespace sok {

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

#endif  // SOK_CC_BASE_STREAMING_H_
