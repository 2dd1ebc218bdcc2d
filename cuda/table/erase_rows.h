// Erases rows of one table.
#ifndef SOK_CUDA_TABLE_ERASE_ROWS_H_
#define SOK_CUDA_TABLE_ERASE_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/table/key_directory.h"

namespace sok {

// distinct[*count] = the distinct values of rows[n], sorted, without kAbsentRow. Rows are below `row_limit`.
// Arrays are on the device and have n elements; n < 2^31. ResourceExhausted if `scratch` runs out of memory;
// it takes about 16 bytes per row.
Status SortDistinctRows(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* rows, int64_t n,
                        int64_t row_limit, int64_t* distinct, int64_t* count);

// Frees rows[n], which are distinct and in use, in their order, and writes the keys that they had to keys[n].
// The directory must have reserved room for them; the caller counts them (KeyDirectory::CountErased). Does
// not change `rows`.
Status EraseRows(cudaStream_t stream, const KeyDirectory& directory, int64_t* rows, int64_t n, int64_t* keys);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_ERASE_ROWS_H_
