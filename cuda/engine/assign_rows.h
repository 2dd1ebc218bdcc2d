#ifndef SOK_CUDA_ENGINE_ASSIGN_ROWS_H_
#define SOK_CUDA_ENGINE_ASSIGN_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/table/device_table.h"

namespace sok {

// EngineTable::Assign: keys[n] and values[n, dim] are on the device. Waits for the device.
Status AssignRows(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* keys,
                  int64_t n, const float* values);

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_ASSIGN_ROWS_H_
