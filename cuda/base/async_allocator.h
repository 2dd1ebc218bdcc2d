// Device memory from CUDA's own pool.
#ifndef SOK_CUDA_BASE_ASYNC_ALLOCATOR_H_
#define SOK_CUDA_BASE_ASYNC_ALLOCATOR_H_

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"

namespace sok {

// cudaMallocAsync and cudaFreeAsync on the current device. Thread-safe.
//
// By default, CUDA's pool returns free memory to the driver whenever something waits for the device, and the
// next allocation has to map it again. The first allocation on a device tells the device's pool to keep free
// memory, for the whole process; cudaMemPoolTrimTo returns it.
class AsyncAllocator : public DeviceAllocator {
 public:
  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override;
  void Free(cudaStream_t stream, void* memory) override;

 private:
  void KeepFreedMemory();

  std::atomic<uint64_t> told_devices_{0};  // bit number % 64 of each device
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_ASYNC_ALLOCATOR_H_
