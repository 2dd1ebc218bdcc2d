#include "cc/cpu/pooling/pool.h"

#include <algorithm>

#include "cc/base/prefetch.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/pooling/bag_ranges.h"
#include "cc/cpu/pooling/vector_math.h"
#include "cc/lookup/divisor.h"

namespace sok {
namespace {

// Finds the row of occurrence i: through its distinct id, or in a list with one pointer for each occurrence.
struct RowsOfDistinctIds {
  const float* const* rows;
  const int32_t* inverse;
  const float* operator[](int64_t i) const { return rows[inverse[i]]; }
};
struct RowsInOrder {
  const float* const* rows;
  int64_t first;  // the occurrence of rows[0]
  const float* operator[](int64_t i) const { return rows[i - first]; }
};

// The rows of consecutive occurrences [begin, end), each prefetched several occurrences before its use.
template <typename Rows>
class OccurrenceRows {
 public:
  OccurrenceRows(Rows rows, int64_t dim, int64_t begin, int64_t end)
      : rows_(rows), dim_(dim), end_(end), distance_(PrefetchDistance(dim)) {
    const int64_t warm = std::min(end, begin + distance_);
    for (int64_t i = begin; i < warm; ++i) PrefetchFloats(rows_[i], dim_);
  }

  // The row of occurrence i; call in increasing order of i.
  const float* At(int64_t i) const {
    if (i + distance_ < end_) PrefetchFloats(rows_[i + distance_], dim_);
    return rows_[i];
  }

 private:
  Rows rows_;
  int64_t dim_;
  int64_t end_;
  int64_t distance_;
};

// The sum of occurrences [begin, end), at least one, into `out`.
template <typename Rows, typename Dim>
void SumBag(const OccurrenceRows<Rows>& rows, int64_t begin, int64_t end, Dim dim, float* out) {
  const int64_t first_eight = begin + RowsBeforeEights(end - begin);
  Copy(rows.At(begin), dim, out);
  for (int64_t i = begin + 1; i < first_eight; ++i) Add(rows.At(i), dim, out);
  for (int64_t i = first_eight; i < end; i += 8) {
    const float* eight[8];
    for (int64_t k = 0; k < 8; ++k) eight[k] = rows.At(i + k);
    AddEight(eight, dim, out);
  }
}

// The weighted sum of occurrences [begin, end), at least one, into `out`.
template <typename Rows, typename Dim>
void SumWeightedBag(const OccurrenceRows<Rows>& rows, Span<const float> weights, int64_t begin, int64_t end,
                    Dim dim, float* out) {
  CopyScaled(rows.At(begin), weights[begin], dim, out);
  for (int64_t i = begin + 1; i < end; ++i) AddScaled(rows.At(i), weights[i], dim, out);
}

// The row of the output for the bag of occurrences [begin, end).
template <typename Rows, typename Dim>
void PoolBag(const OccurrenceRows<Rows>& rows, Span<const float> weights, Combiner combiner, int64_t begin,
             int64_t end, Dim dim, float* out) {
  const float divisor = begin < end ? BagDivisor(combiner, weights, begin, end) : 0.0f;
  if (divisor == 0.0f) {
    SetZero(dim, out);
  } else if (weights.empty()) {
    SumBag(rows, begin, end, dim, out);
    DivideUnweighted(divisor, end - begin, dim, out);
  } else {
    SumWeightedBag(rows, weights, begin, end, dim, out);
    if (divisor != 1.0f) Divide(divisor, dim, out);
  }
}

// The rows of the output for bags [first, last).
template <typename Rows>
void PoolBags(Rows rows, Span<const int64_t> offsets, Span<const float> weights, Combiner combiner,
              int64_t dim, int64_t first, int64_t last, float* out, int64_t out_stride) {
  WithColumns(dim, [&](auto columns) {
    const OccurrenceRows<Rows> bag_rows(rows, columns, offsets[first], offsets[last]);
    for (int64_t bag = first; bag < last; ++bag) {
      PoolBag(bag_rows, weights, combiner, offsets[bag], offsets[bag + 1], columns, out + bag * out_stride);
    }
  });
}

// Copies the rows of occurrences [begin, end).
template <typename Rows>
void GatherRange(Rows rows, int64_t dim, int64_t begin, int64_t end, float* out, int64_t out_stride,
                 OutputStores stores) {
  // Streaming does not pay for cache lines that are only partly written.
  const bool streamed =
      stores == OutputStores::kStreamed && IsWholeLines(out, dim) && IsWholeLines(out, out_stride);
  WithColumns(dim, [&](auto columns) {
    const OccurrenceRows<Rows> range_rows(rows, columns, begin, end);
    if (streamed) {
      for (int64_t i = begin; i < end; ++i) Stream(range_rows.At(i), columns, out + i * out_stride);
      FinishStreaming();
    } else {
      for (int64_t i = begin; i < end; ++i) Copy(range_rows.At(i), columns, out + i * out_stride);
    }
  });
}

}  // namespace

void PoolForward(Executor& executor, Span<const float* const> rows, Span<const int32_t> inverse,
                 Span<const int64_t> offsets, Span<const float> weights, Combiner combiner, int64_t dim,
                 float* out, int64_t out_stride) {
  ParallelForBags(executor, offsets, RowCost(dim), [&](int64_t first, int64_t last) {
    PoolBags(RowsOfDistinctIds{rows.data(), inverse.data()}, offsets, weights, combiner, dim, first, last,
             out, out_stride);
  });
}

void GatherForward(Executor& executor, Span<const float* const> rows, Span<const int32_t> inverse,
                   int64_t dim, float* out, int64_t out_stride, OutputStores stores) {
  executor.ParallelFor(inverse.size(), RowCost(dim), [&](int64_t begin, int64_t end) {
    RunVectorized([&] {
      GatherRange(RowsOfDistinctIds{rows.data(), inverse.data()}, dim, begin, end, out, out_stride, stores);
    });
  });
}

void PoolRows(Span<const float* const> rows, Span<const int64_t> offsets, Combiner combiner, int64_t dim,
              float* out, int64_t out_stride) {
  if (NumBags(offsets) == 0) return;
  RunVectorized([&] {
    PoolBags(RowsInOrder{rows.data(), offsets[0]}, offsets, {}, combiner, dim, 0, NumBags(offsets), out,
             out_stride);
  });
}

void CopyRows(Span<const float* const> rows, int64_t dim, float* out, int64_t out_stride,
              OutputStores stores) {
  RunVectorized(
      [&] { GatherRange(RowsInOrder{rows.data(), 0}, dim, 0, rows.size(), out, out_stride, stores); });
}

}  // namespace sok
