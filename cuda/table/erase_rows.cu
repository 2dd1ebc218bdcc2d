#include <algorithm>
#include <cub/cub.cuh>

#include "cuda/base/cuda_status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/table/erase_rows.h"

namespace sok {
namespace {

// Bits that tell rows below `row_limit` and kAbsentRow apart, whose bits are all set.
int BitsOf(int64_t row_limit) {
  int bits = 1;
  while (bits < 63 && (int64_t{1} << bits) - 1 < row_limit) ++bits;
  return bits;
}

Status Sort(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* rows, int64_t n, int64_t row_limit,
            uint64_t* sorted) {
  if (n == 0) return OkStatus();
  const auto sort = [&](void* memory, size_t& bytes) {
    return CudaStatus(
        cub::DeviceRadixSort::SortKeys(memory, bytes, reinterpret_cast<const uint64_t*>(rows), sorted,
                                       static_cast<int>(n), 0, BitsOf(row_limit), stream),
        "cannot sort ", n, " rows");
  };
  size_t bytes = 0;
  SOK_RETURN_IF_ERROR(sort(nullptr, bytes));
  // The first call only asks for bytes where it gets no memory.
  StatusOr<DeviceBuffer<char>> memory =
      DeviceBuffer<char>::Allocate(scratch, stream, static_cast<int64_t>(std::max<size_t>(bytes, 1)));
  SOK_RETURN_IF_ERROR(memory.status());
  return sort(memory.value().data(), bytes);
}

struct IsFirstOfRow {
  const uint64_t* sorted;
  __device__ bool operator()(int64_t i) const {
    return static_cast<int64_t>(sorted[i]) != kAbsentRow && (i == 0 || sorted[i - 1] != sorted[i]);
  }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    CompactKernel(FlagRanks ranks, const uint64_t* sorted, int64_t n, int64_t* distinct, int64_t* count) {
  if (ThreadOfGrid() == 0) *count = ranks.Before(n);
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    if (ranks.IsFlagged(i)) distinct[ranks.Before(i)] = static_cast<int64_t>(sorted[i]);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    FreeRowsKernel(KeyDirectoryView directory, int64_t num_free, const int64_t* rows, int64_t n,
                   int64_t* keys) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t row = rows[i];
    keys[i] = directory.keys[row];
    directory.states[row] = FreedState(directory.states[row]);
    directory.free_rows[num_free + i] = row;
  }
}

}  // namespace

Status SortDistinctRows(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* rows, int64_t n,
                        int64_t row_limit, int64_t* distinct, int64_t* count) {
  StatusOr<DeviceBuffer<uint64_t>> sorted = DeviceBuffer<uint64_t>::Allocate(scratch, stream, n);
  SOK_RETURN_IF_ERROR(sorted.status());
  SOK_RETURN_IF_ERROR(Sort(stream, scratch, rows, n, row_limit, sorted.value().data()));
  RankedFlags firsts;
  SOK_RETURN_IF_ERROR(
      RankFlags("IsFirstOfRow", stream, scratch, n, IsFirstOfRow{sorted.value().data()}, &firsts));
  return Launch("SortDistinctRows", stream, ShapeFor(std::max<int64_t>(n, 1)), CompactKernel, firsts.ranks(),
                sorted.value().data(), n, distinct, count);
}

Status EraseRows(cudaStream_t stream, const KeyDirectory& directory, int64_t* rows, int64_t n,
                 int64_t* keys) {
  SOK_RETURN_IF_ERROR(Launch("FreeRows", stream, ShapeFor(n), FreeRowsKernel, directory.view(),
                             directory.num_free(), rows, n, keys));
  // It writes the rows that the keys had: those that are there.
  return EraseKeys(stream, directory.view().index, keys, n, rows);
}

}  // namespace sok
