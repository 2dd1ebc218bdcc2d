#ifndef SOK_CUDA_ENGINE_REUSABLE_ARRAY_H_
#define SOK_CUDA_ENGINE_REUSABLE_ARRAY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// An array on the device whose memory is reused from step to step. Move-only.
template <typename T>
class ReusableArray {
 public:
  // At least `size` elements of any content, for work on this stream.
  Status Resize(cudaStream_t stream, DeviceAllocator* allocator, int64_t size) {
    if (size <= buffer_.size()) return OkStatus();
    // Frees the old memory first: both together may not fit.
    buffer_.Free();
    StatusOr<DeviceBuffer<T>> made = DeviceBuffer<T>::Allocate(allocator, stream, size + size / 4);
    SOK_RETURN_IF_ERROR(made.status());
    buffer_ = std::move(made.value());
    return OkStatus();
  }

  T* data() const { return buffer_.data(); }

 private:
  DeviceBuffer<T> buffer_;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_REUSABLE_ARRAY_H_
