#include <algorithm>

#include "cc/table/row_reference.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/base/parts.h"
#include "cuda/scan/stable_sort.h"
#include "cuda/sharded/route_ids.h"

namespace sok {
namespace {

static_assert(int64_t{kMaxReceivingRanks} << kReceivedRowBits <= kMaxRows, "received rows have numbers");

// The sort key of each id: its part; entries without an id come after all parts.
__global__ void __launch_bounds__(kThreadsPerBlock)
    FindPartsKernel(IdsOfGroup ids, const OwnersOfTable* owners, const int64_t* boundaries, int ranks,
                    uint32_t* parts, int32_t* numbers) {
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
  StatusOr<DeviceBuffer<uint32_t>> memory = DeviceBuffer<uint32_t>::Allocate(scratch, stream, 2 * ids.max);
  SOK_RETURN_IF_ERROR(memory.status());
  StatusOr<DeviceBuffer<int32_t>> numbers = DeviceBuffer<int32_t>::Allocate(scratch, stream, ids.max);
  SOK_RETURN_IF_ERROR(numbers.status());
  uint32_t* const parts = memory.value().data();
  uint32_t* const sorted = parts + ids.max;
  const int num_parts = ids.tables * ranks;
  SOK_RETURN_IF_ERROR(Launch("FindParts", stream, ShapeFor(ids.max), FindPartsKernel, ids, owners, boundaries,
                             ranks, parts, numbers.value().data()));
  SOK_RETURN_IF_ERROR(StableSort(stream, scratch, ids.max, int64_t{num_parts} + 1, parts,
                                 numbers.value().data(), sorted, routed.number));
  return Launch("PlaceIds", stream, ShapeFor(std::max<int64_t>(ids.max, num_parts + 1)), PlaceIdsKernel, ids,
                sorted, counts, num_parts, routed);
}

Status NumberReceivedRows(cudaStream_t stream, const int64_t* begin, int parts, int ranks, int64_t max,
                          int64_t* rows) {
  return Launch("NumberReceivedRows", stream, ShapeFor(max), NumberReceivedKernel, begin, parts, ranks, rows);
}

}  // namespace sok
