// Sums over occurrences in kernels. Only .cu files include this header.
#ifndef SOK_CUDA_TRAINING_SUM_SEGMENT_H_
#define SOK_CUDA_TRAINING_SUM_SEGMENT_H_

#include <cstdint>

#include "cuda/rows/floats.h"
#include "cuda/training/gradient_sums.h"
#include "cuda/training/segment_pieces.h"

namespace sok {

// Reads kTerms terms at once, and adds them one after another. read(k) returns term k.
template <int kTerms, int kWidth, typename Read>
__device__ __forceinline__ void AddTerms(const Read& read, Floats<kWidth>* sum) {
  Floats<kWidth> terms[kTerms];
  float scales[kTerms];
  for (int k = 0; k < kTerms; ++k) read(k, &terms[k], &scales[k]);
  for (int k = 0; k < kTerms; ++k) AddScaledTo(scales[k], terms[k], sum);
}

// The sum of n terms in order; read(i, term, scale) reads term i.
template <int kWidth, typename Read>
__device__ __forceinline__ Floats<kWidth> SumInOrder(int64_t n, const Read& read) {
  Floats<kWidth> sum = EmptySum<kWidth>();
  int64_t i = 0;
  const auto from_i = [&](int k, Floats<kWidth>* term, float* scale) { read(i + k, term, scale); };
  for (; i + 8 <= n; i += 8) AddTerms<8>(from_i, &sum);
  if (i + 4 <= n) {
    AddTerms<4>(from_i, &sum);
    i += 4;
  }
  for (; i < n; ++i) AddTerms<1>(from_i, &sum);
  return sum;
}

// The sum over the occurrences [begin, end) of the table, numbered in the order of its segments, for the
// columns from `column` on.
template <int kWidth>
__device__ __forceinline__ Floats<kWidth> SumPiece(const SumsView& sums, int64_t begin, int64_t end,
                                                   int64_t column) {
  const int32_t* const positions = sums.positions + sums.first_occurrence + begin;
  return SumInOrder<kWidth>(end - begin, [&](int64_t i, Floats<kWidth>* term, float* scale) {
    const OccurrenceGradient gradient = sums.gradients[positions[i]];
    *term = LoadFloats<kWidth>(gradient.row + column);
    *scale = gradient.scale;
  });
}

// The gradient of the table's distinct id number k, for the columns from `column` on.
template <int kWidth>
__device__ __forceinline__ Floats<kWidth> SumSegment(const SumsView& sums, int64_t k, int64_t column) {
  const int64_t begin = sums.begin[k] - sums.first_occurrence;
  const int64_t end = sums.begin[k + 1] - sums.first_occurrence;
  if (begin == end) return EqualFloats<kWidth>(0.0f);
  Floats<kWidth> sum;
  if (end - begin <= kSegmentPiece) {
    sum = SumPiece<kWidth>(sums, begin, end, column);
  } else {
    const int64_t pieces = (end - begin + kSegmentPiece - 1) / kSegmentPiece;
    sum = SumInOrder<kWidth>(pieces, [&](int64_t i, Floats<kWidth>* term, float* scale) {
      const int64_t slot = PieceSlot(begin + i * kSegmentPiece, end);
      *term = LoadFloats<kWidth>(sums.pieces + slot * sums.dim + column);
      *scale = 1.0f;
    });
  }
  if (sums.divisor != 1.0f) DivideBy(sums.divisor, &sum);
  return sum;
}

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_SUM_SEGMENT_H_
