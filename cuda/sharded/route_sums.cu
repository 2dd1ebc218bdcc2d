#include <algorithm>

#include "cuda/base/device_buffer.h"
#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/base/parts.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/sharded/route_sums.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    FindBagsKernel(IdsOfGroup ids, const int32_t* number, const int32_t* positions, const SummedBags* bags,
                   int32_t* bag_of) {
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
  const int64_t n = *num_rows;
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) lengths[k] = starts[k + 1] - starts[k];
}

}  // namespace

Status FindRoutedRows(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids,
                      const RoutedIds& routed, const int32_t* positions, const SummedBags* bags, int ranks,
                      const RoutedRows& rows) {
  const int parts = ids.tables * ranks;
  StatusOr<DeviceBuffer<int32_t>> memory = DeviceBuffer<int32_t>::Allocate(scratch, stream, 2 * ids.max + 1);
  SOK_RETURN_IF_ERROR(memory.status());
  int32_t* const bag_of = memory.value().data();
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
