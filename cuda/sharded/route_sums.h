// The sums that a rank requests from the owners.
#ifndef SOK_CUDA_SHARDED_ROUTE_SUMS_H_
#define SOK_CUDA_SHARDED_ROUTE_SUMS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/sharded/route_ids.h"
#include "cuda/table/ids_of_group.h"

namespace sok {

// The bags of the one lookup of a table whose owners answer with sums: bag b has the occurrences
// [bag_begin[b], bag_begin[b + 1]) of the group. No bags for tables whose owners answer with rows.
struct SummedBags {
  const int32_t* bag_begin = nullptr;
  int64_t bags = 0;
};

// The requested rows, in the order of the routed ids: one sum for each run of ids that belong to the same bag
// and part; in tables without bags, one row for each id. The arrays are on the device.
struct RoutedRows {
  int64_t* begin = nullptr;    // [parts + 1]: part q has the rows [begin[q], begin[q + 1])
  int32_t* bags = nullptr;     // [max]: the bag of each sum; -1 for rows
  int32_t* lengths = nullptr;  // [max]: the number of ids that each sums up
};

// Finds the requested rows. `ids` are the group's, as passed to RouteIds, and positions[u] is the occurrence
// of id u; the ids of tables with bags were not merged. bags[ids.tables] is on the device. Waits for nothing.
// ResourceExhausted if `scratch` runs out of memory; it takes about 9 bytes per id.
Status FindRoutedRows(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids,
                      const RoutedIds& routed, const int32_t* positions, const SummedBags* bags, int ranks,
                      const RoutedRows& rows);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_ROUTE_SUMS_H_
