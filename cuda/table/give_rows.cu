#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/base/parts.h"
#include "cuda/table/give_rows.h"
#include "cuda/table/number_ids.h"

namespace sok {
namespace {

struct IsAbsent {
  const int64_t* rows;
  __device__ bool operator()(int64_t u) const { return rows[u] == kAbsentRow; }
};

// The row for the `i`-th new key of a table.
__device__ __forceinline__ int64_t RowToGive(const RowSource& source, int64_t i) {
  return i < source.num_free ? source.directory.free_rows[source.num_free - 1 - i]
                             : source.row_limit + i - source.num_free;
}

__global__ void __launch_bounds__(kThreadsPerBlock) GiveRowsKernel(NewRows new_rows) {
  for (int64_t k = ThreadOfGrid(); k < new_rows.count; k += ThreadsOfGrid()) {
    const int t = PartOf(new_rows.begin, new_rows.tables, k);
    const RowSource& source = new_rows.sources[t];
    const int64_t row = RowToGive(source, k - new_rows.begin[t]);
    source.directory.keys[row] = new_rows.keys[k];
    source.directory.states[row] |= kRowInUse;
    new_rows.rows[k] = row;
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    CollectKernel(const int64_t* keys, const int32_t* which, int64_t n, int64_t* collected) {
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) collected[k] = keys[which[k]];
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    SpreadKernel(const int64_t* new_rows, const int32_t* which, int64_t n, int64_t* rows) {
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) rows[which[k]] = new_rows[k];
}

}  // namespace

Status ListAbsent(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, const int64_t* rows,
                  const SomeIds& absent) {
  return NumberIds("ListAbsent", stream, scratch, ids, IsAbsent{rows}, absent);
}

Status GiveRows(cudaStream_t stream, const NewRows& new_rows) {
  SOK_RETURN_IF_ERROR(Launch("GiveRows", stream, ShapeFor(new_rows.count), GiveRowsKernel, new_rows));
  GroupKeys group;
  group.tables = new_rows.tables;
  group.views = new_rows.indexes;
  group.begin = new_rows.begin;
  group.max_keys = new_rows.count;
  group.keys = new_rows.keys;
  return InsertKeys(stream, group, new_rows.rows);
}

Status CollectKeys(cudaStream_t stream, const IdsOfGroup& ids, const int32_t* which,
                   const NewRows& new_rows) {
  return Launch("CollectKeys", stream, ShapeFor(new_rows.count), CollectKernel, ids.keys, which,
                new_rows.count, new_rows.keys);
}

Status SpreadRows(cudaStream_t stream, const NewRows& new_rows, const int32_t* which, int64_t* rows) {
  return Launch("SpreadRows", stream, ShapeFor(new_rows.count), SpreadKernel, new_rows.rows, which,
                new_rows.count, rows);
}

}  // namespace sok
