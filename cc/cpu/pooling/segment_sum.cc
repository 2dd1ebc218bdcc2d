#include "cc/cpu/pooling/segment_sum.h"

#include <algorithm>

#include "cc/base/prefetch.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/pooling/bag_ranges.h"
#include "cc/cpu/pooling/vector_math.h"
#include "cc/lookup/divisor.h"

namespace sok {
namespace {

// The columns [column, column + width) of a segment's sum.
class SegmentColumns {
 public:
  SegmentColumns(Span<const int32_t> positions, Span<const float* const> grad_rows, Span<const float> scales,
                 int64_t column)
      : positions_(positions), grad_rows_(grad_rows), scales_(scales), column_(column) {}

  // Of the segment positions[begin, end).
  template <typename Width>
  void Sum(int64_t begin, int64_t end, Width width, float* out) const {
    if (begin == end) return SetZero(width, out);
    SumPiece(begin, std::min(end, begin + kSegmentPiece), 0, width, out);
    if (end - begin > kSegmentPiece) AddPieces(begin + kSegmentPiece, end, width, out);
  }

 private:
  // The sum of positions[begin, end), at least one, one after the other; its columns from `column` on.
  template <typename Width>
  void SumPiece(int64_t begin, int64_t end, int64_t column, Width width, float* out) const {
    const int64_t last = positions_.size();
    const int64_t distance = PrefetchDistance(width);
    column += column_;
    for (int64_t i = begin; i < end; ++i) {
      // The positions of the next segments follow directly, so that short segments are prefetched too.
      if (i + distance < last) PrefetchFloats(grad_rows_[positions_[i + distance]] + column, width);
      const int32_t p = positions_[i];
      const float* row = grad_rows_[p] + column;
      if (i == begin) {
        scales_.empty() ? Copy(row, width, out) : CopyScaled(row, scales_[p], width, out);
      } else {
        scales_.empty() ? Add(row, width, out) : AddScaled(row, scales_[p], width, out);
      }
    }
  }

  // Adds the sums of the pieces of positions[begin, end) to `out`.
  template <typename Width>
  void AddPieces(int64_t begin, int64_t end, Width width, float* out) const {
    if (width <= kPieceColumns) return AddPieces(begin, end, 0, width, out);
    for (int64_t column = 0; column < width; column += kPieceColumns) {
      AddPieces(begin, end, column, std::min<int64_t>(kPieceColumns, width - column), out + column);
    }
  }
  template <typename Width>
  void AddPieces(int64_t begin, int64_t end, int64_t column, Width width, float* out) const {
    alignas(64) float sum[kPieceColumns];
    for (int64_t piece = begin; piece < end; piece += kSegmentPiece) {
      SumPiece(piece, std::min(end, piece + kSegmentPiece), column, width, sum);
      Add(sum, width, out);
    }
  }

  static constexpr int64_t kPieceColumns = 1024;  // the whole of most rows

  const Span<const int32_t> positions_;
  const Span<const float* const> grad_rows_;
  const Span<const float> scales_;
  const int64_t column_;
};

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
    RunVectorized([&] {
      SegmentColumns(positions_, grad_rows_, scales_, column)
          .Sum(offsets_[segment], offsets_[segment + 1], width, out + column);
    });
  });
}

void SegmentSums::Take(int64_t first, int64_t last, float* out) const {
  auto next_long = std::lower_bound(long_.begin(), long_.end(), first);
  RunVectorized([&] {
    const SegmentColumns columns(positions_, grad_rows_, scales_, /*column=*/0);
    WithColumns(dim_, [&](auto dim) {
      for (int64_t s = first; s < last; ++s, out += dim) {
        if (next_long != long_.end() && *next_long == s) {
          Copy(long_sums_.data() + (next_long++ - long_.begin()) * dim, dim, out);
        } else {
          columns.Sum(offsets_[s], offsets_[s + 1], dim, out);
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
    for (int64_t i = begin; i < end; ++i) scales[i] = WeightedScale(weights[i], divisor);
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
    dots[i] = WeightGradient(combiner, weights[i], dots[i], pooled, divisor);
  }
}

}  // namespace

void WeightGradients(Executor& executor, Combiner combiner, const RowsInPlace& rows,
                     Span<const int32_t> inverse, Span<const int64_t> offsets, Span<const float> weights,
                     const float* grad, int64_t grad_stride, int64_t dim, Span<float> out) {
  rows.Visit([&](auto elements, auto pointers) {
    using E = decltype(elements);
    ParallelForBags(executor, offsets, RowCost(dim), [&](int64_t first, int64_t last) {
      const int64_t distance = PrefetchDistance(dim);
      for (int64_t bag = first; bag < last; ++bag) {
        const float* bag_grad = grad + bag * grad_stride;
        for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
          if (i + distance < inverse.size()) PrefetchRow(pointers[inverse[i + distance]], dim);
          out[i] = Dot<E>(bag_grad, pointers[inverse[i]], dim);
        }
        FinishBag(combiner, weights, offsets[bag], offsets[bag + 1], out);
      }
    });
  });
}

}  // namespace sok
