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

// Copies a row of whole lines past the caches: the lines of `out` are neither read first nor kept.
inline void Stream(const float* in, int64_t dim, float* out) {
#ifdef __SSE2__
  for (int64_t c = 0; c < dim; c += 4) _mm_stream_ps(out + c, _mm_loadu_ps(in + c));
#else
  std::memcpy(out, in, static_cast<size_t>(dim) * sizeof(float));
#endif
}

// To be called by a thread that streamed, before it tells others that it is done: streamed stores are not
// ordered with what comes after them.
inline void FinishStreaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace sok

#endif  // SOK_CC_BASE_STREAMING_H_
