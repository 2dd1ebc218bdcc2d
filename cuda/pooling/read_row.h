// Reading rows of a lookup in kernels. Only .cu files include this header.
#ifndef SOK_CUDA_POOLING_READ_ROW_H_
#define SOK_CUDA_POOLING_READ_ROW_H_

#include <cstdint>

#include "cc/initializers/initializer.h"
#include "cc/table/row_reference.h"
#include "cuda/pooling/lookup_view.h"
#include "cuda/rows/floats.h"

namespace sok {

// Initial values are rarely computed, and need many registers.
__device__ __attribute__((noinline)) inline float InitialValueOf(const Initializer& initializer, int64_t key,
                                                                 int64_t column) {
  return InitialValue(initializer, key, column);
}

// The kWidth columns from `column` on of the row of occurrence `i`. kMayBeAbsent: some ids of the lookup may
// have no row.
template <int kWidth, bool kMayBeAbsent>
__device__ __forceinline__ Floats<kWidth> ReadRow(const OccurrenceRows& lookup, int64_t i, int64_t column) {
  const int64_t row = lookup.rows[lookup.inverse[i]];
  if constexpr (kMayBeAbsent) {
    if (row < 0) {
      Floats<kWidth> values;
      for (int k = 0; k < kWidth; ++k) {
        values.v[k] = InitialValueOf(lookup.initial, lookup.keys[i], column + k);
      }
      return values;
    }
  }
  return LoadFloats<kWidth>(lookup.table.Record(RowOf(row)) + column);
}

}  // namespace sok

#endif  // SOK_CUDA_POOLING_READ_ROW_H_
