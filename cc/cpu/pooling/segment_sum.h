#ifndef SOK_CC_CPU_POOLING_SEGMENT_SUM_H_
#define SOK_CC_CPU_POOLING_SEGMENT_SUM_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/cpu/pooling/rows_in_place.h"
#include "cc/lookup/divisor.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// The backward pass of a lookup: from the gradients of its outputs to one gradient per distinct id. Each sum
// has a fixed order, so results are the same bits for every executor and every engine.

// out[u, 0..dim), row-major, becomes the sum of scales[p] * grad_rows[p][0..dim) over the occurrences p of
// distinct id u, positions[offsets[u] .. offsets[u + 1]), in this order and in pieces of kSegmentPiece.
// `offsets` and `positions` are those of Segments; a range of `offsets` gives the sums of a range of ids.
// Empty `scales` mean ones; an id without occurrences gets zeros. Entries of grad_rows may be equal: all
// occurrences of a bag share its gradient.
void SegmentSum(Executor& executor, Span<const int64_t> offsets, Span<const int32_t> positions,
                Span<const float* const> grad_rows, Span<const float> scales, int64_t dim, float* out);

// The same sums, computed for a range of ids at a time. Ids with very many occurrences are summed at
// construction by all threads, each taking some of the columns.
class SegmentSums {
 public:
  // The arguments are those of SegmentSum, and must outlive this object.
  SegmentSums(Executor& executor, Span<const int64_t> offsets, Span<const int32_t> positions,
              Span<const float* const> grad_rows, Span<const float> scales, int64_t dim);

  // Writes the sums of ids [first, last), row-major. Any number of threads may call at the same time.
  void Take(int64_t first, int64_t last, float* out) const;

 private:
  void SumLong(Executor& executor, int64_t segment, float* out) const;

  const Span<const int64_t> offsets_;
  const Span<const int32_t> positions_;
  const Span<const float* const> grad_rows_;
  const Span<const float> scales_;
  const int64_t dim_;
  std::vector<int64_t> long_;  // ids with very many occurrences, increasing
  std::vector<float> long_sums_;
};

// scales[i] becomes the factor by which the gradient of a bag reaches the row of its occurrence i: weights[i]
// divided by the bag's divisor (see Combiner), 0 if the divisor is zero. Empty `weights` mean ones, and the
// quotient is then rounded once. `offsets` is as for PoolForward; scales has one entry per occurrence, and
// entries of no bag are not written.
void BagScales(Combiner combiner, Span<const int64_t> offsets, Span<const float> weights, Span<float> scales);

// The gradient of a weighted lookup with respect to its weights: out[i] becomes d loss / d weights[i], where
// bag b of PoolForward's output has the gradient grad + b * grad_stride. With g that gradient, r_i the row of
// occurrence i and D the bag's divisor:
//   kSum    g . r_i
//   kMean   g . (r_i - sum_k weights[k] r_k / D) / D
//   kSqrtN  g . (r_i - weights[i] sum_k weights[k] r_k / D^2) / D
// and 0 if D is zero. `rows` must hold what PoolForward read.
void WeightGradients(Executor& executor, Combiner combiner, const RowsInPlace& rows,
                     Span<const int32_t> inverse, Span<const int64_t> offsets, Span<const float> weights,
                     const float* grad, int64_t grad_stride, int64_t dim, Span<float> out);

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_SEGMENT_SUM_H_
