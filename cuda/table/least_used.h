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
// smallest (last_used, key) first, or if the table evicts by frequency smallest (frequency, last_used, key).
// Leaves out the rows kept[num_kept], whose negative entries are ignored; there must be at least `n` others.
// Fewer than 2^31 rows.
//
// Chooses `n` of all rows (choose_least.h) and sorts these. Takes half a byte of `scratch` per row and 40
// bytes for each of the `n`; ResourceExhausted if `scratch` runs out of memory.
Status ListLeastUsed(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* kept,
                     int64_t num_kept, int64_t n, DeviceBuffer<int64_t>* rows);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_LEAST_USED_H_
