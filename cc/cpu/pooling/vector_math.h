// Loops over the columns of a row in a form that compilers vectorize. They work element by element, and Dot
// adds in a fixed order, so the results do not depend on the vector width.
#ifndef SOK_CC_CPU_POOLING_VECTOR_MATH_H_
#define SOK_CC_CPU_POOLING_VECTOR_MATH_H_

#include <cstdint>
#include <cstring>

#include "cc/lookup/divisor.h"

namespace sok {

inline void SetZero(int64_t dim, float* out) {
  std::memset(out, 0, static_cast<size_t>(dim) * sizeof(float));
}

inline void Copy(const float* in, int64_t dim, float* out) {
  std::memcpy(out, in, static_cast<size_t>(dim) * sizeof(float));
}

inline void Add(const float* __restrict in, int64_t dim, float* __restrict out) {
  for (int64_t c = 0; c < dim; ++c) out[c] += in[c];
}

// out += the sum of eight rows, computed first.
inline void AddEight(const float* const* rows, int64_t dim, float* __restrict out) {
  const float* __restrict r0 = rows[0];
  const float* __restrict r1 = rows[1];
  const float* __restrict r2 = rows[2];
  const float* __restrict r3 = rows[3];
  const float* __restrict r4 = rows[4];
  const float* __restrict r5 = rows[5];
  const float* __restrict r6 = rows[6];
  const float* __restrict r7 = rows[7];
  for (int64_t c = 0; c < dim; ++c) {
    out[c] += r0[c] + r1[c] + r2[c] + r3[c] + r4[c] + r5[c] + r6[c] + r7[c];
  }
}

inline void CopyScaled(const float* __restrict in, float scale, int64_t dim, float* __restrict out) {
  for (int64_t c = 0; c < dim; ++c) out[c] = scale * in[c];
}

inline void AddScaled(const float* __restrict in, float scale, int64_t dim, float* __restrict out) {
  for (int64_t c = 0; c < dim; ++c) out[c] += scale * in[c];
}

inline void Multiply(float factor, int64_t dim, float* out) {
  for (int64_t c = 0; c < dim; ++c) out[c] *= factor;
}

inline void Divide(float divisor, int64_t dim, float* out) {
  for (int64_t c = 0; c < dim; ++c) out[c] /= divisor;
}

// Divides the sum of an unweighted bag of `rows` rows, with the rounding that PoolForward documents.
inline void DivideUnweighted(float divisor, int64_t rows, int64_t dim, float* sum) {
  if (divisor == 1.0f) return;
  MultipliesByInverse(rows) ? Multiply(1.0f / divisor, dim, sum) : Divide(divisor, dim, sum);
}

// The dot product, summed in eight interleaved partial sums: a fixed order that vectorizes.
inline float Dot(const float* a, const float* b, int64_t dim) {
  float parts[8] = {};
  int64_t c = 0;
  for (; c + 8 <= dim; c += 8) {
    for (int k = 0; k < 8; ++k) parts[k] += a[c + k] * b[c + k];
  }
  for (int k = 0; c < dim; ++c, ++k) parts[k] += a[c] * b[c];
  return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_VECTOR_MATH_H_
