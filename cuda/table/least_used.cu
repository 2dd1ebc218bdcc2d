#include <limits>
#include <utility>

#include "cuda/base/cuda_status.h"
#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/item_sorter.h"
#include "cuda/table/choose_least.h"
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

// Turns the bits of kept rows into those of rows in use that are not kept. One warp per word.
__global__ void __launch_bounds__(kThreadsPerBlock)
    CandidatesKernel(const uint32_t* states, int64_t rows, int64_t words, uint32_t* bits) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int64_t word = ThreadOfGrid() / 32; word < words; word += ThreadsOfGrid() / 32) {
    const int64_t row = word * 32 + lane;
    const uint32_t in_use = __ballot_sync(kAllLanes, row < rows && IsInUse(states[row]));
    if (lane == 0) bits[word] = in_use & ~bits[word];
  }
}

struct IsMarked {
  const uint32_t* bits;
  __device__ bool operator()(int64_t row) const { return (bits[row / 32] >> (row % 32) & 1) != 0; }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    ListFlaggedKernel(FlagRanks ranks, int64_t n, int32_t* rows) {
  for (int64_t row = ThreadOfGrid(); row < n; row += ThreadsOfGrid()) {
    if (ranks.IsFlagged(row)) rows[ranks.Before(row)] = static_cast<int32_t>(row);
  }
}

struct KeysOfRows {
  RowPriorities of;
  __device__ uint64_t operator()(int64_t row) const { return of.Key(row); }
};
struct LastUsesOfRows {
  RowPriorities of;
  __device__ uint64_t operator()(int64_t row) const { return of.LastUsed(row); }
};
struct FrequenciesOfRows {
  RowPriorities of;
  __device__ uint64_t operator()(int64_t row) const { return of.Frequency(row); }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    WidenKernel(const int32_t* rows, int64_t n, int64_t* wide) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) wide[i] = rows[i];
}

RowPriorities PrioritiesOf(const DeviceTable& table) {
  RowPriorities priorities;
  priorities.keys = table.directory().view().keys;
  priorities.last_used = table.usage().last_used->view();
  priorities.uses = table.uses();
  priorities.by_frequency = table.options().on_full == OnFull::kEvictLfu;
  if (priorities.by_frequency) priorities.frequency = table.usage().frequency->view();
  return priorities;
}

// Lists the `n` rows with the least priorities that are in use and not kept, in the order of their numbers.
Status ListLeast(cudaStream_t stream, DeviceAllocator* scratch, const DeviceTable& table,
                 const RowPriorities& priorities, const int64_t* kept, int64_t num_kept, int64_t n,
                 int32_t* rows) {
  const int64_t limit = table.row_limit();
  const int64_t words = (limit + 31) / 32;
  StatusOr<DeviceBuffer<uint32_t>> memory = DeviceBuffer<uint32_t>::Allocate(scratch, stream, words);
  SOK_RETURN_IF_ERROR(memory.status());
  uint32_t* const bits = memory.value().data();
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(bits, 0, static_cast<size_t>(memory.value().bytes()), stream),
                           "cannot clear ", memory.value().bytes(), " bytes on the device");
  SOK_RETURN_IF_ERROR(Launch("KeepRows", stream, ShapeFor(num_kept), KeepKernel, kept, num_kept, bits));
  SOK_RETURN_IF_ERROR(Launch("Candidates", stream, ShapeFor(words, 32), CandidatesKernel,
                             table.directory().view().states, limit, words, bits));
  SOK_RETURN_IF_ERROR(ChooseLeast(stream, scratch, priorities, limit, n, bits));
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(RankFlags("IsMarked", stream, scratch, limit, IsMarked{bits}, &flags));
  return Launch("ListFlagged", stream, ShapeFor(limit), ListFlaggedKernel, flags.ranks(), limit, rows);
}

}  // namespace

Status ListLeastUsed(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* kept,
                     int64_t num_kept, int64_t n, DeviceBuffer<int64_t>* rows) {
  if (table->row_limit() > std::numeric_limits<int32_t>::max()) {
    return ResourceExhausted("cannot number the rows of a table that has had ", table->row_limit(),
                             " on a device");
  }
  const RowPriorities priorities = PrioritiesOf(*table);
  ItemSorter sorter(stream, scratch, n);
  SOK_RETURN_IF_ERROR(sorter.Reserve());
  SOK_RETURN_IF_ERROR(ListLeast(stream, scratch, *table, priorities, kept, num_kept, n, sorter.items()));
  SOK_RETURN_IF_ERROR(sorter.SortBy(KeysOfRows{priorities}, 64));
  SOK_RETURN_IF_ERROR(sorter.SortBy(LastUsesOfRows{priorities}, BitsOf(priorities.uses)));
  if (priorities.by_frequency) SOK_RETURN_IF_ERROR(sorter.SortBy(FrequenciesOfRows{priorities}, 63));
  StatusOr<DeviceBuffer<int64_t>> made = DeviceBuffer<int64_t>::Allocate(scratch, stream, n);
  SOK_RETURN_IF_ERROR(made.status());
  *rows = std::move(made.value());
  return Launch("WidenRows", stream, ShapeFor(n), WidenKernel, sorter.items(), n, rows->data());
}

}  // namespace sok
