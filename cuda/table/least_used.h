// Which rows a full table evicts.
#ifndef SOK_CUDA_TABLE_LEAST_USED_H_
#define SOK_CUDA_TABLE_LEAST_USED_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/base/device_buffer.h"
#include "cuda/table/device_table.h"

namespace sok {

// Lists the first `n` rows in use of a table in the order of EvictionQueue (cc/table/eviction_queue.h),
// smallest (last_used, key) first, or of a table that evicts by frequency smallest (frequency, last_used,
// key). Those among kept[num_kept], of which some may be below 0 for none, are left out; there are at least
// `n` others. Fewer than 2^31 rows.
//
// It chooses `n` of all rows (choose_least.h) and sorts these. Takes of `scratch` half a byte for each row
// and 40 bytes for each of the `n`; ResourceExhausted where that has no memory.
Status ListLeastUsed(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* kept,
                     int64_t num_kept, int64_t n, DeviceBuffer<int64_t>* rows);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_LEAST_USED_H_
