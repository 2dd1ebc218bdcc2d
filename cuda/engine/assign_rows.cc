#include "cuda/engine/assign_rows.h"

#include <limits>

#include "cc/table/table_errors.h"
#include "cuda/base/device_buffer.h"
#include "cuda/dedup/dedup.h"
#include "cuda/store/row_pieces.h"

namespace sok {
namespace {

// The error for the first repeated key, which `inverse` shows. Waits.
Status RepeatedKey(cudaStream_t stream, DeviceTable* table, const int64_t* keys, const int32_t* inverse,
                   int64_t n) {
  StatusOr<const int32_t*> fetched = table->round_trip().Fetch(stream, inverse, n);
  SOK_RETURN_IF_ERROR(table->Named(fetched.status()));
  int64_t at = 0;
  while (at < n && fetched.value()[at] == at) ++at;
  const StatusOr<const int64_t*> key = table->round_trip().Fetch(stream, keys + at, 1);
  SOK_RETURN_IF_ERROR(table->Named(key.status()));
  return KeyToAssignOccursTwice(table->options(), *key.value());
}

Status CheckDistinct(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* keys,
                     int64_t n) {
  StatusOr<DeviceBuffer<int64_t>> words = DeviceBuffer<int64_t>::Allocate(scratch, stream, 4);
  SOK_RETURN_IF_ERROR(table->Named(words.status()));
  StatusOr<DeviceBuffer<int32_t>> numbers = DeviceBuffer<int32_t>::Allocate(scratch, stream, 2 * n);
  SOK_RETURN_IF_ERROR(table->Named(numbers.status()));
  int64_t* const begin = words.value().data();
  const int64_t table_begin[2] = {0, n};
  SOK_RETURN_IF_ERROR(table->Named(table->upload().Copy(stream, table_begin, sizeof(table_begin), begin)));
  int32_t* const inverse = numbers.value().data();
  UniqueIds unique;
  unique.begin = begin + 2;
  unique.inverse = inverse;
  unique.position = inverse + n;
  SOK_RETURN_IF_ERROR(table->Named(Dedup(stream, scratch, {keys, begin, 1, n}, unique)));
  const StatusOr<const int64_t*> fetched = table->round_trip().Fetch(stream, unique.begin, 2);
  SOK_RETURN_IF_ERROR(table->Named(fetched.status()));
  if (fetched.value()[1] == n) return OkStatus();
  return RepeatedKey(stream, table, keys, inverse, n);
}

}  // namespace

Status AssignRows(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* keys,
                  int64_t n, const float* values) {
  if (n == 0) return OkStatus();
  if (n > std::numeric_limits<int32_t>::max()) return TooManyKeys(table->options(), n);
  SOK_RETURN_IF_ERROR(CheckDistinct(stream, scratch, table, keys, n));
  StatusOr<DeviceBuffer<int64_t>> memory = DeviceBuffer<int64_t>::Allocate(scratch, stream, n);
  SOK_RETURN_IF_ERROR(table->Named(memory.status()));
  int64_t* const rows = memory.value().data();
  SOK_RETURN_IF_ERROR(table->FindOrMake(stream, scratch, keys, n, /*own=*/true, rows));
  // A row with postponed steps must not take them after it got its new weights.
  SOK_RETURN_IF_ERROR(table->BringUpToDate(stream, {rows, 0, n}));
  SOK_RETURN_IF_ERROR(
      table->Named(ScatterRows(stream, table->rows(), {rows, 0, n}, 0, table->options().dim, values)));
  return table->Named(table->changes().MarkChanged(stream, rows, n));
}

}  // namespace sok
