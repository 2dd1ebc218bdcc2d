// Device memory from CUDA's own pool.
#ifndef SOK_CUDA_BASE_ASYNC_ALLOCATOR_H_
#define SOK_CUDA_BASE_ASYNC_ALLOCATOR_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"

namespace sok {

// cudaMallocAsync and cudaFreeAsync on the current device. Thread-safe.
class AsyncAllocator : public DeviceAllocator {
 public:
  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override;
  void Free(cudaStream_t stream, void* memory) override;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_ASYNC_ALLOCATOR_H_
