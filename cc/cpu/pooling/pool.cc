#include "cc/cpu/pooling/pool.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cc/base/prefetch.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/pooling/bag_ranges.h"
#include "cc/cpu/pooling/vector_math.h"
#include "cc/lookup/divisor.h"

namespace sok {
namespace {

// Finds the row of occurrence i: through its distinct id, or in a list with one pointer for each occurrence.
template <typename E>
struct RowsOfDistinctIds {
  using Elements = E;
  const typename E::Stored* const* rows;
  const int32_t* inverse;
  const typename E::Stored* operator[](int64_t i) const { return rows[inverse[i]]; }
};
template <typename E>
struct RowsInOrder {
  using Elements = E;
  const typename E::Stored* const* rows;
  int64_t first;  // the occurrence of rows[0]
  const typename E::Stored* operator[](int64_t i) const { return rows[i - first]; }
};

// The rows of consecutive occurrences [begin, end), each prefetched several occurrences before its use.
template <typename Rows>
class OccurrenceRows {
 public:
  using Elements = typename Rows::Elements;
  using Stored = typename Elements::Stored;

  OccurrenceRows(Rows rows, int64_t dim, int64_t begin, int64_t end)
      : rows_(rows),
        dim_(dim),
        end_(end),
        distance_(PrefetchDistance(dim * static_cast<int64_t>(sizeof(Stored)) / 4)) {
    const int64_t warm = std::min(end, begin + distance_);
    for (int64_t i = begin; i < warm; ++i) PrefetchRow(rows_[i], dim_);
  }

  // The row of occurrence i; call in increasing order of i.
  const Stored* At(int64_t i) const {
    if (i + distance_ < end_) PrefetchRow(rows_[i + distance_], dim_);
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
  using E = typename Rows::Elements;
  const int64_t first_eight = begin + RowsBeforeEights(end - begin);
  Copy<E>(rows.At(begin), dim, out);
  for (int64_t i = begin + 1; i < first_eight; ++i) Add<E>(rows.At(i), dim, out);
  for (int64_t i = first_eight; i < end; i += 8) {
    const typename E::Stored* eight[8];
    for (int64_t k = 0; k < 8; ++k) eight[k] = rows.At(i + k);
    AddEight<E>(eight, dim, out);
  }
}

// The weighted sum of occurrences [begin, end), at least one, into `out`.
template <typename Rows, typename Dim>
void SumWeightedBag(const OccurrenceRows<Rows>& rows, Span<const float> weights, int64_t begin, int64_t end,
                    Dim dim, float* out) {
  using E = typename Rows::Elements;
  CopyScaled<E>(rows.At(begin), weights[begin], dim, out);
  for (int64_t i = begin + 1; i < end; ++i) AddScaled<E>(rows.At(i), weights[i], dim, out);
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

// Copies a row of whole cache lines with non-temporal stores.
template <typename E, typename Dim>
void StreamRow(RowOfElements<E> in, Dim dim, float* out) {
  if constexpr (std::is_same_v<E, Float32Elements>) {
    Stream(in, dim, out);
  } else {
    alignas(64) float floats[kFloatsPerLine];
    for (int64_t c = 0; c < dim; c += kFloatsPerLine) {
      Copy<E>(in + c, kFloatsPerLine, floats);
      Stream(floats, kFloatsPerLine, out + c);
    }
  }
}

// Copies the rows of occurrences [begin, end).
template <typename Rows>
void GatherRange(Rows rows, int64_t dim, int64_t begin, int64_t end, float* out, int64_t out_stride,
                 OutputStores stores) {
  using E = typename Rows::Elements;
  // Streaming does not pay for cache lines that are only partly written.
  const bool streamed =
      stores == OutputStores::kStreamed && IsWholeLines(out, dim) && IsWholeLines(out, out_stride);
  WithColumns(dim, [&](auto columns) {
    const OccurrenceRows<Rows> range_rows(rows, columns, begin, end);
    if (streamed) {
      for (int64_t i = begin; i < end; ++i) StreamRow<E>(range_rows.At(i), columns, out + i * out_stride);
      return FinishStreaming();
    }
    for (int64_t i = begin; i < end; ++i) Copy<E>(range_rows.At(i), columns, out + i * out_stride);
  });
}

}  // namespace

void PoolForward(Executor& executor, const RowsInPlace& rows, Span<const int32_t> inverse,
                 Span<const int64_t> offsets, Span<const float> weights, Combiner combiner, int64_t dim,
                 float* out, int64_t out_stride) {
  rows.Visit([&](auto elements, auto pointers) {
    const RowsOfDistinctIds<decltype(elements)> of_ids{pointers, inverse.data()};
    ParallelForBags(executor, offsets, RowCost(dim), [&](int64_t first, int64_t last) {
      PoolBags(of_ids, offsets, weights, combiner, dim, first, last, out, out_stride);
    });
  });
}

void GatherForward(Executor& executor, const RowsInPlace& rows, Span<const int32_t> inverse, int64_t dim,
                   float* out, int64_t out_stride, OutputStores stores) {
  rows.Visit([&](auto elements, auto pointers) {
    const RowsOfDistinctIds<decltype(elements)> of_ids{pointers, inverse.data()};
    executor.ParallelFor(inverse.size(), RowCost(dim), [&](int64_t begin, int64_t end) {
      RunVectorized([&] { GatherRange(of_ids, dim, begin, end, out, out_stride, stores); });
    });
  });
}

void GatherAsStored(Executor& executor, const RowsInPlace& rows, Span<const int32_t> inverse, int64_t dim,
                    float* out) {
  if (rows.type() == FloatType::kFloat32) return GatherForward(executor, rows, inverse, dim, out, dim);
  rows.Visit([&](auto elements, auto pointers) {
    using Stored = typename decltype(elements)::Stored;
    auto* const to = reinterpret_cast<Stored*>(out);
    executor.ParallelFor(inverse.size(), RowCost(dim), [&](int64_t begin, int64_t end) {
      const OccurrenceRows rows_of(RowsOfDistinctIds<decltype(elements)>{pointers, inverse.data()}, dim,
                                   begin, end);
      for (int64_t i = begin; i < end; ++i) std::memcpy(to + i * dim, rows_of.At(i), dim * sizeof(Stored));
    });
    // The last half of a float, which nobody reads.
    if (inverse.size() * dim % 2 != 0) to[inverse.size() * dim] = 0;
  });
}

void PoolRows(const RowsInPlace& rows, Span<const int64_t> offsets, Combiner combiner, int64_t dim,
              float* out, int64_t out_stride) {
  if (NumBags(offsets) == 0) return;
  rows.Visit([&](auto elements, auto pointers) {
    const RowsInOrder<decltype(elements)> in_order{pointers, offsets[0]};
    RunVectorized(
        [&] { PoolBags(in_order, offsets, {}, combiner, dim, 0, NumBags(offsets), out, out_stride); });
  });
}

void CopyRows(const RowsInPlace& rows, int64_t dim, float* out, int64_t out_stride, OutputStores stores) {
  rows.Visit([&](auto elements, auto pointers) {
    const RowsInOrder<decltype(elements)> in_order{pointers, 0};
    RunVectorized([&] { GatherRange(in_order, dim, 0, rows.size(), out, out_stride, stores); });
  });
}

}  // namespace sok
