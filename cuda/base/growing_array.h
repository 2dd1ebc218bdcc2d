// An array on the device that grows.
#ifndef SOK_CUDA_BASE_GROWING_ARRAY_H_
#define SOK_CUDA_BASE_GROWING_ARRAY_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// Numbers that start as zeros, such as one for each row of a table. All work on it is in the order of one
// stream, or of streams that wait for each other. Move-only.
template <typename T>
class GrowingArray {
 public:
  // The allocator must outlive this object.
  explicit GrowingArray(DeviceAllocator* allocator) : allocator_(allocator) {}

  // Makes [0, size) addressable. Keeps the numbers, but data() changes. Grows by half at least, if there is
  // enough memory. Never shrinks. ResourceExhausted if memory runs out; the array is then unchanged.
  Status Reserve(cudaStream_t stream, int64_t size) {
    if (size <= this->size()) return OkStatus();
    const int64_t by_half = this->size() + this->size() / 2;
    if (by_half > size && Grow(stream, by_half).ok()) return OkStatus();
    return Grow(stream, size);
  }

  // Sets the stream on which the memory will be freed. Every use must come before later work on that stream.
  void set_stream(cudaStream_t stream) { buffer_.set_stream(stream); }

  T* data() const { return buffer_.data(); }
  int64_t size() const { return buffer_.size(); }
  int64_t bytes() const { return buffer_.bytes(); }

 private:
  Status Grow(cudaStream_t stream, int64_t size) {
    SOK_ASSIGN_OR_RETURN(auto grown, DeviceBuffer<T>::Allocate(allocator_, stream, size));
    T* const data = grown.data();
    if (bytes() > 0) {
      SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(data, buffer_.data(), static_cast<size_t>(bytes()),
                                               cudaMemcpyDeviceToDevice, stream),
                               "cannot move ", bytes(), " bytes on the device");
    }
    const auto added = static_cast<size_t>(grown.bytes() - bytes());
    SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(data + this->size(), 0, added, stream), "cannot clear ", added,
                             " bytes on the device");
    buffer_.set_stream(stream);
    buffer_ = std::move(grown);
    return OkStatus();
  }

  DeviceAllocator* allocator_;
  DeviceBuffer<T> buffer_;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_GROWING_ARRAY_H_
