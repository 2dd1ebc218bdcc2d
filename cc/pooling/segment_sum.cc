#include "cc/pooling/segment_sum.h"

#include <algorithm>
#include <vector>

#include "cc/base/columns.h"
#include "cc/base/prefetch.h"
#include "cc/base/vectorize.h"
#include "cc/pooling/bag_ranges.h"
#include "cc/pooling/divisor.h"
#include "cc/pooling/vector_math.h"

namespace sok {
namespace {

int64_t RowCost(int64_t dim) { return 4 + dim / 4; }

// The columns [column, column + width) of a segment's sum.
template <typename Width>
void SumColumns(Span<const int64_t> offsets, Span<const int32_t> positions,
                Span<const float* const> grad_rows, Span<const float> scales, int64_t segment, int64_t column,
                Width width, float* out) {
  const int64_t begin = offsets[segment];
  const int64_t end = offsets[segment + 1];
  if (begin == end) {
    SetZero(width, out);
    return;
  }
  const int64_t last = positions.size();
  const int64_t distance = PrefetchDistance(width);
  for (int64_t i = begin; i < end; ++i) {
    // The positions of the next segments follow directly, so that short segments are prefetched too.
    if (i + distance < last) PrefetchFloats(grad_rows[positions[i + distance]] + column, width);
    const int32_t p = positions[i];
    const float* row = grad_rows[p] + column;
    if (i == begin) {
      scales.empty() ? Copy(row, width, out) : CopyScaled(row, scales[p], width, out);
    } else {
      scales.empty() ? Add(row, width, out) : AddScaled(row, scales[p], width, out);
    }
  }
}

// A segment with more occurrences than this is summed by several threads, each taking some of the columns,
// which keeps the order within a column. A shorter one is summed by one thread.
int64_t LongSegment(int64_t occurrences, int concurrency) {
  constexpr int64_t kWorthSplitting = 4096;
  return std::max(kWorthSplitting, occurrences / concurrency / 4);
}

}  // namespace

SegmentSums::SegmentSums(Executor& executor, Span<const int64_t> offsets, Span<const int32_t> positions,
                         Span<const float* const> grad_rows, Span<const float> scales, int64_t dim)
    : offsets_(offsets), positions_(positions), grad_rows_(grad_rows), scales_(scales), dim_(dim) {
  const int64_t segments = NumBags(offsets);
  if (segments == 0 || executor.concurrency() == 1 || dim <= kFloatsPerLine) return;
  const int64_t limit = LongSegment(offsets[segments] - offsets[0], executor.concurrency());
  for (int64_t s = 0; s < segments; ++s) {
    if (offsets[s + 1] - offsets[s] > limit) long_.push_back(s);
  }
  long_sums_.resize(long_.size() * dim);
  for (size_t i = 0; i < long_.size(); ++i) SumLong(executor, long_[i], long_sums_.data() + i * dim);
}

void SegmentSums::SumLong(Executor& executor, int64_t segment, float* out) const {
  constexpr int64_t kColumns = kFloatsPerLine;
  const int64_t blocks = (dim_ + kColumns - 1) / kColumns;
  const int64_t cost = (offsets_[segment + 1] - offsets_[segment]) * RowCost(kColumns);
  executor.ParallelFor(blocks, cost, [&](int64_t first, int64_t last) {
    const int64_t column = first * kColumns;
    const int64_t width = std::min(dim_, last * kColumns) - column;
    RunVectorized(
        [&] { SumColumns(offsets_, positions_, grad_rows_, scales_, segment, column, width, out + column); });
  });
}

void SegmentSums::Take(int64_t first, int64_t last, float* out) const {
  auto next_long = std::lower_bound(long_.begin(), long_.end(), first);
  RunVectorized([&] {
    WithColumns(dim_, [&](auto dim) {
      for (int64_t s = first; s < last; ++s, out += dim) {
        if (next_long != long_.end() && *next_long == s) {
          Copy(long_sums_.data() + (next_long++ - long_.begin()) * dim, dim, out);
        } else {
          SumColumns(offsets_, positions_, grad_rows_, scales_, s, 0, dim, out);
        }
      }
    });
  });
}

void SegmentSum(Executor& executor, Span<const int64_t> offsets, Span<const int32_t> positions,
                Span<const float* const> grad_rows, Span<const float> scales, int64_t dim, float* out) {
  const SegmentSums sums(executor, offsets, positions, grad_rows, scales, dim);
  ParallelForBags(executor, offsets, RowCost(dim),
                  [&](int64_t first, int64_t last) { sums.Take(first, last, out + first * dim); });
}

void BagScales(Combiner combiner, Span<const int64_t> offsets, Span<const float> weights,
               Span<float> scales) {
  for (int64_t bag = 0; bag < NumBags(offsets); ++bag) {
    const int64_t begin = offsets[bag];
    const int64_t end = offsets[bag + 1];
    if (weights.empty()) {
      std::fill(scales.begin() + begin, scales.begin() + end, UnweightedScale(combiner, end - begin));
      continue;
    }
    const float divisor = BagDivisor(combiner, weights, begin, end);
    for (int64_t i = begin; i < end; ++i) scales[i] = divisor == 0.0f ? 0.0f : weights[i] / divisor;
  }
}

namespace {

// Turns the dot products dots[i] = g . r_i of a bag into the gradients of its weights, in place.
void FinishBag(Combiner combiner, Span<const float> weights, int64_t begin, int64_t end, Span<float> dots) {
  const float divisor = BagDivisor(combiner, weights, begin, end);
  if (divisor == 0.0f) {
    std::fill(dots.begin() + begin, dots.begin() + end, 0.0f);
    return;
  }
  if (combiner == Combiner::kSum) return;
  float pooled = 0.0f;  // g . (the bag's output)
  for (int64_t i = begin; i < end; ++i) pooled += weights[i] * dots[i];
  pooled /= divisor;
  for (int64_t i = begin; i < end; ++i) {
    // The derivative of the divisor by the weight: 1 for the mean, w_i / D for the root of the sum of
    // squares.
    const float growth = combiner == Combiner::kMean ? 1.0f : weights[i] / divisor;
    dots[i] = (dots[i] - growth * pooled) / divisor;
  }
}

}  // namespace

void WeightGradients(Executor& executor, Combiner combiner, Span<const float* const> rows,
                     Span<const int32_t> inverse, Span<const int64_t> offsets, Span<const float> weights,
                     const float* grad, int64_t grad_stride, int64_t dim, Span<float> out) {
  ParallelForBags(executor, offsets, RowCost(dim), [&](int64_t first, int64_t last) {
    const int64_t distance = PrefetchDistance(dim);
    for (int64_t bag = first; bag < last; ++bag) {
      const float* bag_grad = grad + bag * grad_stride;
      for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
        if (i + distance < inverse.size()) PrefetchFloats(rows[inverse[i + distance]], dim);
        out[i] = Dot(bag_grad, rows[inverse[i]], dim);
      }
      FinishBag(combiner, weights, offsets[bag], offsets[bag + 1], out);
    }
  });
}

}  // namespace sok
