// Reading rows of a lookup in kernels. Only .cu files include this header.
#ifndef SOK_CUDA_POOLING_READ_ROW_H_
#define SOK_CUDA_POOLING_READ_ROW_H_

#include <cstdint>

#include "cc/initializers/initializer.h"
#include "cc/lookup/divisor.h"
#include "cc/table/record_layout.h"
#include "cuda/base/floats.h"
#include "cuda/pooling/lookup_view.h"
#include "cuda/store/record_numbers.h"

namespace sok {

// Initial values are rarely read, and need many registers.
__device__ __attribute__((noinline)) inline float InitialValueOf(const Initializer& initializer, int64_t dim,
                                                                 int64_t key, int64_t column) {
  if (initializer.kind == InitializerKind::kGiven) return GivenRow(initializer, dim, key)[column];
  return InitialValue(initializer, key, column);
}

// The record of a row of a lookup; null if it is negative, which only a lookup with kMayBeAbsent may have.
template <bool kMayBeAbsent>
__device__ __forceinline__ const char* RecordOfRow(const OccurrenceRows& lookup, int64_t row) {
  if (kMayBeAbsent && row < 0) return nullptr;
  return lookup.table.Record(RowOf(row));
}

// The record that occurrence `i` reads.
template <bool kMayBeAbsent>
__device__ __forceinline__ const char* RecordOf(const OccurrenceRows& lookup, int64_t i) {
  const int64_t row = lookup.rows[lookup.inverse == nullptr ? i : lookup.inverse[i]];
  return RecordOfRow<kMayBeAbsent>(lookup, row);
}

// The records that kCount occurrences read. To find one takes three loads that depend on one another: this
// waits for each of them at once for all records. `merged`: whether the lookup has an `inverse`.
template <bool kMayBeAbsent, int kCount>
__device__ __forceinline__ void FindRecords(const OccurrenceRows& lookup, bool merged,
                                            const int32_t (&occurrences)[kCount],
                                            const char* (&records)[kCount]) {
  int32_t ids[kCount];
  int64_t rows[kCount];
  for (int k = 0; k < kCount; ++k) ids[k] = occurrences[k];
  if (merged) {
    for (int k = 0; k < kCount; ++k) ids[k] = lookup.inverse[ids[k]];
  }
  for (int k = 0; k < kCount; ++k) rows[k] = lookup.rows[ids[k]];
  for (int k = 0; k < kCount; ++k) records[k] = RecordOfRow<kMayBeAbsent>(lookup, rows[k]);
}

// The kWidth columns from `column` on of the row of occurrence `i`, whose record is known; of rows in 16
// bits, as they are.
template <int kWidth, bool kMayBeAbsent>
__device__ __forceinline__ Halves<kWidth> ReadHalves(const OccurrenceRows& lookup, const char* record,
                                                     int64_t i, int64_t column) {
  if (kMayBeAbsent && record == nullptr) {
    Halves<kWidth> halves;
    for (int k = 0; k < kWidth; ++k) {
      halves.v[k] = ToHalf(lookup.table.shape.weight_type(),
                           InitialValueOf(lookup.initial, lookup.table.dim, lookup.keys[i], column + k));
    }
    return halves;
  }
  return LoadHalves<kWidth>(reinterpret_cast<const uint16_t*>(record) + column);
}

// The same as floats. kHalves: whether rows are in 16 bits.
template <int kWidth, bool kMayBeAbsent, bool kHalves>
__device__ __forceinline__ Floats<kWidth> ReadRecord(const OccurrenceRows& lookup, const char* record,
                                                     int64_t i, int64_t column) {
  if constexpr (kHalves) {
    return FloatsOf(lookup.table.shape.weight_type(),
                    ReadHalves<kWidth, kMayBeAbsent>(lookup, record, i, column));
  }
  if constexpr (kMayBeAbsent) {
    if (record == nullptr) {
      Floats<kWidth> values;
      for (int k = 0; k < kWidth; ++k) {
        values.v[k] = InitialValueOf(lookup.initial, lookup.table.dim, lookup.keys[i], column + k);
      }
      return values;
    }
  }
  return LoadFloats<kWidth>(reinterpret_cast<const float*>(record) + column);
}

// The same, if the record is not known.
template <int kWidth, bool kMayBeAbsent, bool kHalves>
__device__ __forceinline__ Floats<kWidth> ReadRow(const OccurrenceRows& lookup, int64_t i, int64_t column) {
  return ReadRecord<kWidth, kMayBeAbsent, kHalves>(lookup, RecordOf<kMayBeAbsent>(lookup, i), i, column);
}

// What becomes of the sum of a bag's rows. Only .cu files include this header.

// Divides the sum of the `rows` rows of a bag without weights, with the roundings that PoolForward documents.
template <int kWidth>
__device__ __forceinline__ void FinishUnweighted(Combiner combiner, int64_t rows, Floats<kWidth>* sum) {
  const float divisor = UnweightedDivisor(combiner, rows);
  if (divisor == 1.0f) return;
  MultipliesByInverse(rows) ? MultiplyBy(1.0f / divisor, sum) : DivideBy(divisor, sum);
}

// Divides the sum of the weighted rows of a bag, of which `divisor_sum` is the sum of DivisorTerms.
template <int kWidth>
__device__ __forceinline__ void FinishWeighted(Combiner combiner, float divisor_sum, Floats<kWidth>* sum) {
  const float divisor = DivisorOfSum(combiner, divisor_sum);
  if (divisor == 0.0f) {
    *sum = EqualFloats<kWidth>(0.0f);
  } else if (divisor != 1.0f) {
    DivideBy(divisor, sum);
  }
}

}  // namespace sok

#endif  // SOK_CUDA_POOLING_READ_ROW_H_
