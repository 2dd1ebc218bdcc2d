// Where device memory comes from.
#ifndef SOK_CUDA_BASE_DEVICE_ALLOCATOR_H_
#define SOK_CUDA_BASE_DEVICE_ALLOCATOR_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"

namespace sok {

// Memory that kernels can use, in the order of a stream: what was put into the stream after Allocate may use
// it, and what was put there before Free. Neither call waits for the device.
//
// A caller gives one for the scratch of a step and one for what a table keeps. Implementations say whether
// they are thread-safe.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;

  // `bytes` >= 0, aligned to 256 bytes, with any content. Null for 0 bytes. ResourceExhausted where memory
  // does not suffice.
  virtual StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) = 0;

  // Takes memory of this allocator back; null is nothing. `stream` need not be that of Allocate, if it is
  // ordered behind every use.
  virtual void Free(cudaStream_t stream, void* memory) = 0;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_DEVICE_ALLOCATOR_H_
