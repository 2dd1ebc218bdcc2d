// Loops over the columns of a row in a form that compilers vectorize. They work element by element, and Dot
// adds in a fixed order, so the results do not depend on the vector width.
#ifndef SOK_CC_CPU_POOLING_VECTOR_MATH_H_
#define SOK_CC_CPU_POOLING_VECTOR_MATH_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cc/base/float_types.h"
#include "cc/lookup/divisor.h"

namespace sok {

// How the elements of a row are stored. Loops over rows in 16 bits compute in float32.
struct Float32Elements {
  using Stored = float;
  static float Load(float value) { return value; }
};
struct Float16Elements {
  using Stored = uint16_t;
  static float Load(uint16_t value) { return FromFloat16(value); }
};
struct Bfloat16Elements {
  using Stored = uint16_t;
  static float Load(uint16_t value) { return FromBfloat16(value); }
};

// A row of E's elements: a type that a template does not deduce from an argument, so that rows of floats need
// no template arguments.
template <typename E>
using RowOfElements = const typename E::Stored* __restrict;

inline void SetZero(int64_t dim, float* out) {
  std::memset(out, 0, static_cast<size_t>(dim) * sizeof(float));
}

template <typename E = Float32Elements>
inline void Copy(RowOfElements<E> in, int64_t dim, float* __restrict out) {
  if constexpr (std::is_same_v<E, Float32Elements>) {
    std::memcpy(out, in, static_cast<size_t>(dim) * sizeof(float));
  } else {
    for (int64_t c = 0; c < dim; ++c) out[c] = E::Load(in[c]);
  }
}

template <typename E = Float32Elements>
inline void Add(RowOfElements<E> in, int64_t dim, float* __restrict out) {
  for (int64_t c = 0; c < dim; ++c) out[c] += E::Load(in[c]);
}

// out += the sum of eight rows, computed first.
template <typename E = Float32Elements>
inline void AddEight(const typename E::Stored* const* rows, int64_t dim, float* __restrict out) {
  RowOfElements<E> r0 = rows[0];
  RowOfElements<E> r1 = rows[1];
  RowOfElements<E> r2 = rows[2];
  RowOfElements<E> r3 = rows[3];
  RowOfElements<E> r4 = rows[4];
  RowOfElements<E> r5 = rows[5];
  RowOfElements<E> r6 = rows[6];
  RowOfElements<E> r7 = rows[7];
  for (int64_t c = 0; c < dim; ++c) {
    out[c] += E::Load(r0[c]) + E::Load(r1[c]) + E::Load(r2[c]) + E::Load(r3[c]) + E::Load(r4[c]) +
              E::Load(r5[c]) + E::Load(r6[c]) + E::Load(r7[c]);
  }
}

template <typename E = Float32Elements>
inline void CopyScaled(RowOfElements<E> in, float scale, int64_t dim, float* __restrict out) {
  for (int64_t c = 0; c < dim; ++c) out[c] = scale * E::Load(in[c]);
}

template <typename E = Float32Elements>
inline void AddScaled(RowOfElements<E> in, float scale, int64_t dim, float* __restrict out) {
  for (int64_t c = 0; c < dim; ++c) out[c] += scale * E::Load(in[c]);
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
template <typename E = Float32Elements>
inline float Dot(const float* a, const typename E::Stored* b, int64_t dim) {
  float parts[8] = {};
  int64_t c = 0;
  for (; c + 8 <= dim; c += 8) {
    for (int k = 0; k < 8; ++k) parts[k] += a[c + k] * E::Load(b[c + k]);
  }
  for (int k = 0; c < dim; ++c, ++k) parts[k] += a[c] * E::Load(b[c]);
  return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_VECTOR_MATH_H_
