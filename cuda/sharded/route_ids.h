// Which rank each id of a group goes to.
#ifndef SOK_CUDA_SHARDED_ROUTE_IDS_H_
#define SOK_CUDA_SHARDED_ROUTE_IDS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cc/placement/key_owners.h"
#include "cuda/base/device_allocator.h"
#include "cuda/table/ids_of_group.h"

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

// Sorts the ids of each table by owner, into the order of cc/sharded/owner_order.h. owners[ids.tables],
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
constexpr int kMaxReceivingRanks = 512;  // limited by the bits of row references (cc/table/row_reference.h)
Status NumberReceivedRows(cudaStream_t stream, const int64_t* begin, int parts, int ranks, int64_t max,
                          int64_t* rows);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_ROUTE_IDS_H_
