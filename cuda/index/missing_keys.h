// The keys of a group that have no rows yet, and the rows that they get.
#ifndef SOK_CUDA_INDEX_MISSING_KEYS_H_
#define SOK_CUDA_INDEX_MISSING_KEYS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/index/key_index.h"

namespace sok {

// Arrays in device memory. With the group's keys and rows, `begin` and `which` are what InsertKeys (as
// GroupKeys) and StartRows (as GroupRows) take.
struct MissingKeys {
  int64_t* begin = nullptr;  // [tables + 1]: table t misses the numbers which[begin[t], begin[t + 1])
  int32_t* which = nullptr;  // [max_keys]: numbers of keys, increasing; begin[tables] are written
};

// FindKeys, and a list of the keys that are not there. `keys` has no list of its own (`which` is null), and
// begin[tables] <= max_keys < 2^31. Enqueues three kernels and waits for nothing. InvalidArgument for more
// keys; ResourceExhausted where `scratch` has no memory, of which it takes a bit more than 2 bits for a key.
Status FindKeysAndMissing(cudaStream_t stream, DeviceAllocator* scratch, const GroupKeys& keys, int64_t* rows,
                          const MissingKeys& missing);

// Which rows a table's new keys get: first freed rows, the last freed first, and then new ones in order, as
// RowDirectory has it on the CPU.
struct RowSupply {
  const int64_t* freed = nullptr;  // [num_freed], in the order in which they were freed; in device memory
  int64_t num_freed = 0;
  int64_t first_new = 0;
};

// rows[missing.which[m]] = a row for each missing key, in their order; supplies[tables] in device memory.
// `max_missing` is about as many as missing.begin[tables]. One kernel.
Status AssignRows(cudaStream_t stream, int tables, const MissingKeys& missing, int64_t max_missing,
                  const RowSupply* supplies, int64_t* rows);

}  // namespace sok

#endif  // SOK_CUDA_INDEX_MISSING_KEYS_H_
