// Rows of one table that lose their keys.
#ifndef SOK_CUDA_TABLE_ERASE_ROWS_H_
#define SOK_CUDA_TABLE_ERASE_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/table/key_directory.h"

namespace sok {

// Sorts rows[n], of which none is beyond `row_limit`, and leaves each once: distinct[*count]. kAbsentRow is
// left out. Arrays on the device, of n elements; n < 2^31. ResourceExhausted where `scratch` has no memory,
// of which it takes about 16 bytes a row.
Status SortDistinctRows(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* rows, int64_t n,
                        int64_t row_limit, int64_t* distinct, int64_t* count);

// Frees rows[n], which are distinct and in use, in their order, and writes the keys that they had to keys[n].
// The directory has reserved room for it; the caller counts them (KeyDirectory::CountErased). `rows` stay as
// they are.
Status EraseRows(cudaStream_t stream, const KeyDirectory& directory, int64_t* rows, int64_t n, int64_t* keys);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_ERASE_ROWS_H_
