#include "cuda/base/launch.h"
#include "cuda/table/device_table.h"

namespace sok {
namespace {

// A negative row is kAbsentRow or kForeignRow.
__device__ __forceinline__ int64_t RowIn(const RowFinder& finder, int64_t key) {
  if (finder.may_be_foreign && !finder.owners.Holds(finder.rank, key)) return kForeignRow;
  return finder.is_static ? finder.static_rows.RowOf(key) : FindRow(finder.index, key);
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    FindRowsKernel(IdsOfGroup ids, const RowFinder* finders, int64_t* rows, uint64_t* first_unknown) {
  const int64_t n = ids.begin[ids.tables];
  for (int64_t u = ThreadOfGrid(); u < n; u += ThreadsOfGrid()) {
    const RowFinder& finder = finders[PartOf(ids.begin, ids.tables, u)];
    const int64_t row = RowIn(finder, ids.keys[u]);
    rows[u] = row;
    if (row == kAbsentRow && finder.is_static) {
      atomicMin(reinterpret_cast<unsigned long long*>(first_unknown), static_cast<unsigned long long>(u));
    }
  }
}

}  // namespace

Status FindRows(cudaStream_t stream, const IdsOfGroup& ids, const RowFinder* finders, int64_t* rows,
                uint64_t* first_unknown) {
  return Launch("FindRows", stream, ShapeFor(ids.max), FindRowsKernel, ids, finders, rows, first_unknown);
}

}  // namespace sok
