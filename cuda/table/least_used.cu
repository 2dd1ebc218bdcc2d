#include <limits>
#include <utility>

#include "cuda/base/cuda_status.h"
#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/item_sorter.h"
#include "cuda/store/row_column.h"
#include "cuda/table/least_used.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    KeepKernel(const int64_t* kept, int64_t n, uint32_t* bits) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t row = kept[i];
    if (row >= 0) atomicOr(&bits[row / 32], 1u << (row % 32));
  }
}

struct IsCandidate {
  const uint32_t* states;
  const uint32_t* kept;
  __device__ bool operator()(int64_t row) const {
    return IsInUse(states[row]) && (kept[row / 32] >> (row % 32) & 1) == 0;
  }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    ListCandidatesKernel(FlagRanks ranks, int64_t n, int32_t* rows) {
  for (int64_t row = ThreadOfGrid(); row < n; row += ThreadsOfGrid()) {
    if (ranks.IsFlagged(row)) rows[ranks.Before(row)] = static_cast<int32_t>(row);
  }
}

// Numbers of rows, as unsigned ones of the same order.
struct SignedKeys {
  const int64_t* keys;
  __device__ uint64_t operator()(int64_t row) const {
    return static_cast<uint64_t>(keys[row]) ^ (uint64_t{1} << 63);
  }
};
struct ColumnValues {
  ColumnView<int64_t> column;  // none is negative
  __device__ uint64_t operator()(int64_t row) const { return static_cast<uint64_t>(column[row]); }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    WidenKernel(const int32_t* rows, int64_t n, int64_t* wide) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) wide[i] = rows[i];
}

// Bits of numbers from 0 to `most`.
int BitsOf(int64_t most) {
  int bits = 1;
  while (bits < 63 && most >= int64_t{1} << bits) ++bits;
  return bits;
}

// Lists the rows in use that are not kept.
Status ListCandidates(cudaStream_t stream, DeviceAllocator* scratch, const DeviceTable& table,
                      const int64_t* kept, int64_t num_kept, int32_t* rows) {
  const int64_t limit = table.row_limit();
  StatusOr<DeviceBuffer<uint32_t>> bits =
      DeviceBuffer<uint32_t>::Allocate(scratch, stream, (limit + 31) / 32);
  SOK_RETURN_IF_ERROR(bits.status());
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(bits.value().data(), 0, static_cast<size_t>(bits.value().bytes()), stream),
      "cannot clear ", bits.value().bytes(), " bytes on the device");
  SOK_RETURN_IF_ERROR(
      Launch("KeepRows", stream, ShapeFor(num_kept), KeepKernel, kept, num_kept, bits.value().data()));
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(RankFlags("IsCandidate", stream, scratch, limit,
                                IsCandidate{table.directory().view().states, bits.value().data()}, &flags));
  return Launch("ListCandidates", stream, ShapeFor(limit), ListCandidatesKernel, flags.ranks(), limit, rows);
}

}  // namespace

Status ListLeastUsed(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* kept,
                     int64_t num_kept, int64_t present, int64_t n, DeviceBuffer<int64_t>* rows) {
  if (table->row_limit() > std::numeric_limits<int32_t>::max()) {
    return ResourceExhausted("cannot sort the rows of a table that has had ", table->row_limit(),
                             " on a device");
  }
  ItemSorter sorter(stream, scratch, table->size() - present);
  SOK_RETURN_IF_ERROR(sorter.Reserve());
  SOK_RETURN_IF_ERROR(ListCandidates(stream, scratch, *table, kept, num_kept, sorter.items()));
  SOK_RETURN_IF_ERROR(sorter.SortBy(SignedKeys{table->directory().view().keys}, 64));
  SOK_RETURN_IF_ERROR(sorter.SortBy(ColumnValues{table->usage().last_used->view()}, BitsOf(table->uses())));
  if (table->options().on_full == OnFull::kEvictLfu) {
    SOK_RETURN_IF_ERROR(sorter.SortBy(ColumnValues{table->usage().frequency->view()}, 63));
  }
  StatusOr<DeviceBuffer<int64_t>> made = DeviceBuffer<int64_t>::Allocate(scratch, stream, n);
  SOK_RETURN_IF_ERROR(made.status());
  *rows = std::move(made.value());
  return Launch("WidenRows", stream, ShapeFor(n), WidenKernel, sorter.items(), n, rows->data());
}

}  // namespace sok
