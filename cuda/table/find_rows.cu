#include <cuda/atomic>

#include "cuda/base/launch.h"
#include "cuda/table/device_table.h"

namespace sok {
namespace {

// A negative row is kAbsentRow or kForeignRow.
__device__ __forceinline__ int64_t RowIn(const RowFinder& finder, int64_t key) {
  if (finder.may_be_foreign && !finder.owners.Holds(finder.rank, key)) return kForeignRow;
  return finder.is_static ? finder.static_rows.RowOf(key) : FindRow(finder.index, key);
}

// Of many threads only the first ones write.
__device__ __forceinline__ void Mark(int64_t* word) {
  const cuda::atomic_ref<int64_t, cuda::thread_scope_device> mark(*word);
  if (mark.load(cuda::std::memory_order_relaxed) == 0) mark.store(1, cuda::std::memory_order_relaxed);
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    FindRowsKernel(IdsOfGroup ids, const RowFinder* finders, int64_t* rows, uint64_t* first_unknown,
                   int64_t* any_absent) {
  AwaitPreviousKernels();
  const int64_t n = ids.begin[ids.tables];
  for (int64_t u = ThreadOfGrid(); u < n; u += ThreadsOfGrid()) {
    const int t = PartOf(ids.begin, ids.tables, u);
    const RowFinder& finder = finders[t];
    const int64_t row = RowIn(finder, ids.keys[u]);
    rows[u] = row;
    if (row == kAbsentRow && any_absent != nullptr) Mark(any_absent + t);
    if (row == kAbsentRow && finder.is_static) {
      atomicMin(reinterpret_cast<unsigned long long*>(first_unknown), static_cast<unsigned long long>(u));
    }
  }
}

}  // namespace

Status FindRows(cudaStream_t stream, const IdsOfGroup& ids, const RowFinder* finders, int64_t* rows,
                uint64_t* first_unknown, int64_t* any_absent) {
  return Launch("FindRows", stream, ShapeFor(ids.max), FindRowsKernel, ids, finders, rows, first_unknown,
                any_absent);
}

}  // namespace sok
