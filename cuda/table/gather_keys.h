#ifndef SOK_CUDA_TABLE_GATHER_KEYS_H_
#define SOK_CUDA_TABLE_GATHER_KEYS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/table/device_table.h"

namespace sok {

// keys[i] = the key of rows[i], a row in use. The arrays have n elements on the device.
Status GatherKeys(cudaStream_t stream, const DeviceTable& table, const int64_t* rows, int64_t n,
                  int64_t* keys);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_GATHER_KEYS_H_
