#include <algorithm>

#include "cc/table/record_layout.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/stable_sort.h"
#include "cuda/sharded/route_ids.h"

namespace sok {
namespace {

static_assert(int64_t{kMaxReceivingRanks} << kReceivedRowBits <= kMaxRows, "received rows have numbers");

// The sort key of each id: its part; entries without an id come after all parts.
__global__ void __launch_bounds__(kThreadsPerBlock)
    FindPartsKernel(IdsOfGroup ids, const OwnersOfTable* owners, const int64_t* boundaries, int ranks,
                    uint32_t* parts, int32_t* numbers) {
  AwaitPreviousKernels();
  const int64_t n = ids.begin[ids.tables];
  for (int64_t u = ThreadOfGrid(); u < ids.max; u += ThreadsOfGrid()) {
    uint32_t part = static_cast<uint32_t>(ids.tables) * ranks;
    if (u < n) {
      const int t = PartOf(ids.begin, ids.tables, u);
      KeyOwners of_table = owners[t].owners;
      of_table.boundaries = boundaries + owners[t].first_boundary;
      part = static_cast<uint32_t>(t) * ranks + of_table.OwnerOf(ids.keys[u]);
    }
    parts[u] = part;
    numbers[u] = static_cast<int32_t>(u);
  }
}

// The position of the first of sorted[n] that is not less than `part`.
__device__ int64_t FirstOfPart(const uint32_t* sorted, int64_t n, int64_t part) {
  int64_t low = 0;
  int64_t high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (sorted[middle] < part) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    PlaceIdsKernel(IdsOfGroup ids, const uint32_t* sorted, const int32_t* counts, int num_parts,
                   RoutedIds routed) {
  AwaitPreviousKernels();
  const int64_t n = ids.begin[ids.tables];
  for (int64_t q = ThreadOfGrid(); q <= num_parts; q += ThreadsOfGrid()) {
    routed.begin[q] = FirstOfPart(sorted, n, q);
  }
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int32_t u = routed.number[i];
    routed.moved[u] = static_cast<int32_t>(i);
    routed.keys[i] = ids.keys[u];
    if (routed.counts != nullptr) routed.counts[i] = counts[u];
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    NumberReceivedKernel(const int64_t* begin, int parts, int ranks, int64_t* rows) {
  AwaitPreviousKernels();
  const int64_t n = begin[parts];
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) {
    const int q = PartOf(begin, parts, k);
    rows[k] = static_cast<int64_t>(q % ranks) << kReceivedRowBits | (k - begin[q]);
  }
}

}  // namespace

Status RouteIds(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids,
                const OwnersOfTable* owners, const int64_t* boundaries, const int32_t* counts, int ranks,
                const RoutedIds& routed) {
  SOK_ASSIGN_OR_RETURN(auto memory, DeviceBuffer<uint32_t>::Allocate(scratch, stream, 2 * ids.max));
  SOK_ASSIGN_OR_RETURN(auto numbers, DeviceBuffer<int32_t>::Allocate(scratch, stream, ids.max));
  uint32_t* const parts = memory.data();
  uint32_t* const sorted = parts + ids.max;
  const int num_parts = ids.tables * ranks;
  SOK_RETURN_IF_ERROR(Launch("FindParts", stream, ShapeFor(ids.max), FindPartsKernel, ids, owners, boundaries,
                             ranks, parts, numbers.data()));
  SOK_RETURN_IF_ERROR(StableSort(stream, scratch, ids.max, int64_t{num_parts} + 1, parts, numbers.data(),
                                 sorted, routed.number));
  return Launch("PlaceIds", stream, ShapeFor(std::max<int64_t>(ids.max, num_parts + 1)), PlaceIdsKernel, ids,
                sorted, counts, num_parts, routed);
}

Status NumberReceivedRows(cudaStream_t stream, const int64_t* begin, int parts, int ranks, int64_t max,
                          int64_t* rows) {
  return Launch("NumberReceivedRows", stream, ShapeFor(max), NumberReceivedKernel, begin, parts, ranks, rows);
}

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    FindBagsKernel(IdsOfGroup ids, const int32_t* number, const int32_t* positions, const SummedBags* bags,
                   int32_t* bag_of) {
  AwaitPreviousKernels();
  const int64_t n = ids.begin[ids.tables];
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const SummedBags& of_table = bags[PartOf(ids.begin, ids.tables, i)];
    bag_of[i] = of_table.bag_begin == nullptr
                    ? -1
                    : PartOf(of_table.bag_begin, static_cast<int>(of_table.bags), positions[number[i]]);
  }
}

// Whether a row begins with routed id `i`.
struct BeginsRow {
  const int64_t* num_ids;
  const int64_t* part_begin;
  int parts;
  const int32_t* bag_of;

  __device__ bool operator()(int64_t i) const {
    if (i >= *num_ids) return false;
    if (bag_of[i] < 0 || i == 0 || bag_of[i] != bag_of[i - 1]) return true;
    return part_begin[PartOf(part_begin, parts, i)] == i;
  }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    PlaceRowsKernel(FlagRanks rows_before, IdsOfGroup ids, const int64_t* part_begin, int parts,
                    const int32_t* bag_of, RoutedRows rows, int32_t* starts) {
  AwaitPreviousKernels();
  const int64_t n = ids.begin[ids.tables];
  for (int64_t q = ThreadOfGrid(); q <= parts; q += ThreadsOfGrid()) {
    rows.begin[q] = rows_before.Before(part_begin[q]);
  }
  for (int64_t i = ThreadOfGrid(); i <= n; i += ThreadsOfGrid()) {
    const int32_t row = rows_before.Before(i);
    if (i == n || rows_before.IsFlagged(i)) starts[row] = static_cast<int32_t>(i);
    if (i < n && rows_before.IsFlagged(i)) rows.bags[row] = bag_of[i];
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    LengthsKernel(const int64_t* num_rows, const int32_t* starts, int32_t* lengths) {
  AwaitPreviousKernels();
  const int64_t n = *num_rows;
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) lengths[k] = starts[k + 1] - starts[k];
}

}  // namespace

Status FindRoutedRows(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids,
                      const RoutedIds& routed, const int32_t* positions, const SummedBags* bags, int ranks,
                      const RoutedRows& rows) {
  const int parts = ids.tables * ranks;
  SOK_ASSIGN_OR_RETURN(auto memory, DeviceBuffer<int32_t>::Allocate(scratch, stream, 2 * ids.max + 1));
  int32_t* const bag_of = memory.data();
  int32_t* const starts = bag_of + ids.max;
  SOK_RETURN_IF_ERROR(Launch("FindBags", stream, ShapeFor(ids.max), FindBagsKernel, ids, routed.number,
                             positions, bags, bag_of));
  RankedFlags begins;
  SOK_RETURN_IF_ERROR(RankFlags("BeginsRow", stream, scratch, ids.max,
                                BeginsRow{ids.begin + ids.tables, routed.begin, parts, bag_of}, &begins));
  SOK_RETURN_IF_ERROR(Launch("PlaceRows", stream, ShapeFor(std::max<int64_t>(ids.max, parts) + 1),
                             PlaceRowsKernel, begins.ranks(), ids, routed.begin, parts, bag_of, rows,
                             starts));
  return Launch("Lengths", stream, ShapeFor(ids.max), LengthsKernel, rows.begin + parts, starts,
                rows.lengths);
}

}  // namespace sok
