// Sums over occurrences in kernels. Only .cu files include this header.
#ifndef SOK_CUDA_TRAINING_SUM_SEGMENT_H_
#define SOK_CUDA_TRAINING_SUM_SEGMENT_H_

#include <cstdint>

#include "cuda/base/floats.h"
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

// Adds n terms in order, kAtOnce at a time; read(i, term, scale) reads term i.
template <int kAtOnce, int kWidth, typename Read>
__device__ __forceinline__ void AddInOrder(int64_t n, const Read& read, Floats<kWidth>* sum) {
  int64_t i = 0;
  const auto from_i = [&](int k, Floats<kWidth>* term, float* scale) { read(i + k, term, scale); };
  for (; i + kAtOnce <= n; i += kAtOnce) AddTerms<kAtOnce>(from_i, sum);
  if (i + 4 <= n) {
    AddTerms<4>(from_i, sum);
    i += 4;
  }
  for (; i < n; ++i) AddTerms<1>(from_i, sum);
}

// The gradient that an occurrence adds, read by one 16-byte access.
__device__ __forceinline__ OccurrenceGradient GradientAt(const SumsView& sums, int64_t occurrence) {
  return sums.gradients[sums.positions[sums.first_occurrence + occurrence]];
}

// The sum over the occurrences [begin, end) of the table, numbered in the order of its segments, for the
// columns from `column` on.
template <int kWidth>
__device__ __forceinline__ Floats<kWidth> SumPiece(const SumsView& sums, int64_t begin, int64_t end,
                                                   int64_t column) {
  Floats<kWidth> sum = EmptySum<kWidth>();
  const auto read = [&](int64_t i, Floats<kWidth>* term, float* scale) {
    const OccurrenceGradient gradient = GradientAt(sums, begin + i);
    *term = LoadFloats<kWidth>(gradient.row + column);
    *scale = gradient.scale;
  };
  AddInOrder<8>(end - begin, read, &sum);
  return sum;
}

// The gradient of a table's distinct id whose segment is [begin, end), for the columns from `column` on.
template <int kWidth>
__device__ __forceinline__ Floats<kWidth> SumSegment(const SumsView& sums, int64_t begin, int64_t end,
                                                     int64_t column) {
  if (begin == end) return EqualFloats<kWidth>(0.0f);
  Floats<kWidth> sum;
  if (end - begin <= kShortSegment) {
    sum = SumPiece<kWidth>(sums, begin, end, column);
  } else {
    const int64_t pieces = (end - begin + kSegmentPiece - 1) / kSegmentPiece;
    sum = EmptySum<kWidth>();
    const auto read = [&](int64_t i, Floats<kWidth>* term, float* scale) {
      const int64_t slot = PieceSlot(begin + i * kSegmentPiece, begin, end);
      *term = LoadFloats<kWidth>(sums.pieces + slot * sums.dim + column);
      *scale = 1.0f;
    };
    AddInOrder<8>(pieces, read, &sum);
  }
  if (sums.divisor != 1.0f) DivideBy(sums.divisor, &sum);
  return sum;
}

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_SUM_SEGMENT_H_
