// Where device memory comes from.
#ifndef SOK_CUDA_BASE_DEVICE_ALLOCATOR_H_
#define SOK_CUDA_BASE_DEVICE_ALLOCATOR_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"

namespace sok {

// Memory that kernels can use, in the order of a stream: work enqueued on the stream between Allocate and
// Free may use it. Neither call waits for the device, unless an implementation says so.
//
// Callers pass one allocator for the scratch of a step and another for what a table keeps. Implementations
// document whether they are thread-safe.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;

  // `bytes` >= 0, aligned to 256 bytes, with any content. Null for 0 bytes. ResourceExhausted if memory runs
  // out.
  virtual StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) = 0;

  // Frees memory of this allocator; does nothing for null. `stream` need not be that of Allocate, if it is
  // ordered after every use.
  virtual void Free(cudaStream_t stream, void* memory) = 0;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_DEVICE_ALLOCATOR_H_
