#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/index/insert_key.h"
#include "cuda/store/record_numbers.h"
#include "cuda/store/start_row.h"
#include "cuda/table/make_rows.h"

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

}  // namespace sok
