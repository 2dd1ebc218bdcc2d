// Which rank each id of a group goes to.
#ifndef SOK_CUDA_SHARDED_ROUTE_IDS_H_
#define SOK_CUDA_SHARDED_ROUTE_IDS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cc/placement/key_owners.h"
#include "cuda/base/device_buffer.h"
#include "cuda/table/key_directory.h"

namespace sok {

// Tells which rank owns the keys of a table. The boundaries of ranges are those of the group from
// `first_boundary` on.
struct OwnersOfTable {
  KeyOwners owners;
  int64_t first_boundary = 0;
};

// The ids of a group, ordered by table, then by owner, and otherwise in their order. The arrays are on the
// device. Part t * ranks + r belongs to table t and rank r.
struct RoutedIds {
  int64_t* begin = nullptr;   // [tables * ranks + 1]: part q has the ids [begin[q], begin[q + 1])
  int64_t* keys = nullptr;    // [max]
  int32_t* number = nullptr;  // [max]: the number that each had among the group's ids
  int32_t* moved = nullptr;   // [max]: the new position of each of the group's ids
  int32_t* counts = nullptr;  // [max]: how often each occurs. Null if not needed
};

// Sorts the ids of each table by owner, into the order of cc/cpu/sharded/route_group.cc. owners[ids.tables],
// `boundaries` and counts[ids.max], which may be null, are on the device. Waits for nothing.
// ResourceExhausted if `scratch` runs out of memory; it takes about 20 bytes per id.
Status RouteIds(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids,
                const OwnersOfTable* owners, const int64_t* boundaries, const int32_t* counts, int ranks,
                const RoutedIds& routed);

// The rows that owners answer with: row k of a part that begins at begin[q] is number k - begin[q] of the
// rows from rank q % ranks. A row number holds both, the number among the rank's rows in the low
// kReceivedRowBits bits. rows[k] for k in [0, begin[parts]), of which there are at most `max`. At most
// kMaxReceivingRanks ranks.
constexpr int kReceivedRowBits = 31;
constexpr int kMaxReceivingRanks = 512;  // limited by the bits of row references (cc/table/record_layout.h)
Status NumberReceivedRows(cudaStream_t stream, const int64_t* begin, int parts, int ranks, int64_t max,
                          int64_t* rows);

// The sums that a rank requests from the owners.

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

#endif  // SOK_CUDA_SHARDED_ROUTE_IDS_H_
