#include <algorithm>
#include <cuda/atomic>
#include <vector>

#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/index/insert_key.h"
#include "cuda/store/record_numbers.h"
#include "cuda/store/row_kernels.h"
#include "cuda/table/device_table.h"
#include "cuda/table/insert_rows.h"

namespace sok {
namespace {

// The number of resident blocks to compile for: threads wait for the index most of the time.
constexpr int kResidentMakes = 4;

// Gives new id number `k` a row in all but the record. Returns what becomes of that.
__device__ __forceinline__ RowStart MakeRow(const RowsToMake& work, int t, int64_t k) {
  const RowMaker& maker = work.makers[t];
  const int32_t u = work.some.which[k];
  const int64_t key = work.keys[u];
  const int64_t row = RowToGive(maker.source, k - work.some.begin[t]);
  maker.source.directory.keys[row] = key;
  maker.source.directory.states[row] |= kRowInUse;
  work.made[k] = row;
  work.rows[u] = row;
  const KeyIndexView index = maker.source.directory.index;
  InsertKey(index, key, row);
  WriteStream(maker.store, maker.seed, key, maker.store.Record(row));
  return StartOf(maker.store, maker.initializer, key, row);
}

// Writes rows[some.which[k]] of the new ids, as MakeRows will.
__global__ void __launch_bounds__(kThreadsPerBlock) GiveRowsKernel(RowsToMake work) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < work.count; k += ThreadsOfGrid()) {
    const int t = PartOf(work.some.begin, work.tables, k);
    work.rows[work.some.which[k]] = RowToGive(work.makers[t].source, k - work.some.begin[t]);
  }
}

// Each lane of a warp makes the row of one id. Then groups of 2^lanes_log2 lanes write the records of these
// rows, one at a time each, while other warps wait for the index.
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentMakes)
    MakeRowsKernel(RowsToMake work, int lanes_log2) {
  AwaitPreviousKernels();
  __shared__ RowStart starts[kThreadsPerBlock];
  __shared__ int tables[kThreadsPerBlock];
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfWarp;
  const int first_of_warp = static_cast<int>(threadIdx.x) - lane;
  const int lanes = 1 << lanes_log2;
  for (int64_t k = ThreadOfGrid(); k - lane < work.count; k += ThreadsOfGrid()) {
    if (k < work.count) {
      const int t = PartOf(work.some.begin, work.tables, k);
      tables[threadIdx.x] = t;
      starts[threadIdx.x] = MakeRow(work, t, k);
    }
    __syncwarp();
    const int64_t left = work.count - (k - lane);
    const int made = left < kLanesOfWarp ? static_cast<int>(left) : kLanesOfWarp;
    for (int i = lane >> lanes_log2; i < made; i += kLanesOfWarp >> lanes_log2) {
      const RowMaker& maker = work.makers[tables[first_of_warp + i]];
      const RowStart start = starts[first_of_warp + i];
      if (maker.store.shape.is_plain()) {
        WriteStart(maker.store, maker.initializer, start, lane & (lanes - 1), lanes);
      } else {
        WriteRoundedStart(maker.store, maker.initializer, start.record, start.given, start.state,
                          lane & (lanes - 1), lanes);
      }
    }
    __syncwarp();
  }
}

}  // namespace

Status MakeRows(cudaStream_t stream, const RowsToMake& work) {
  return Launch("MakeRows", stream, ShapeFor(work.count), MakeRowsKernel, work,
                LanesLog2(work.max_width, /*width=*/4));
}

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

namespace {

// The tables as they are once the evicted rows are erased.
std::vector<RowMaker> MakersOf(Span<DeviceTable* const> tables, Span<const EvictedRows> evicted) {
  std::vector<RowMaker> makers;
  for (int64_t t = 0; t < tables.size(); ++t) {
    const DeviceTable& table = *tables[t];
    makers.push_back({table.source(evicted.empty() ? 0 : evicted[t].n), table.rows(), table.initializer(),
                      table.rounding_seed()});
  }
  return makers;
}

}  // namespace

Status InsertRows(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<DeviceTable* const> tables, const IdsOfGroup& ids, const SomeIds& some,
                  Span<const int64_t> begin, Span<const EvictedRows> evicted, int64_t* rows,
                  FunctionRef<Status()> bring_up) {
  const int64_t count = begin[tables.size()];
  if (count == 0) return bring_up();
  SOK_ASSIGN_OR_RETURN(auto made, DeviceBuffer<int64_t>::Allocate(scratch, stream, count));
  const std::vector<RowMaker> makers = MakersOf(tables, evicted);
  RowsToMake work;
  work.tables = static_cast<int>(tables.size());
  work.keys = ids.keys;
  work.some = some;
  work.count = count;
  for (const RowMaker& maker : makers) work.max_width = std::max(work.max_width, maker.store.width);
  work.made = made.data();
  work.rows = rows;
  upload->Add(Span<const RowMaker>(makers), &work.makers);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, upload->Send(stream, scratch));

  // From here on nothing needs memory.
  for (int64_t t = 0; t < evicted.size(); ++t) {
    SOK_RETURN_IF_ERROR(
        tables[t]->EraseRowsOf(stream, evicted[t].rows.data(), evicted[t].n, evicted[t].keys.data()));
  }
  if (std::any_of(tables.begin(), tables.end(), [](DeviceTable* t) { return t->tiers() != nullptr; })) {
    SOK_RETURN_IF_ERROR(Launch("GiveRows", stream, ShapeFor(count), GiveRowsKernel, work));
  }
  SOK_RETURN_IF_ERROR(bring_up());
  SOK_RETURN_IF_ERROR(MakeRows(stream, work));
  for (int64_t t = 0; t < tables.size(); ++t) {
    SOK_RETURN_IF_ERROR(tables[t]->StartUse(stream, work.made + begin[t], begin[t + 1] - begin[t]));
  }
  return OkStatus();
}

}  // namespace sok
