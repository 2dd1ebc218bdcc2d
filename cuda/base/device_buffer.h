// An array in memory of a DeviceAllocator.
#ifndef SOK_CUDA_BASE_DEVICE_BUFFER_H_
#define SOK_CUDA_BASE_DEVICE_BUFFER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"

namespace sok {

// `size` elements that kernels can use, freed with this object. Move-only. The allocator must outlive it, and
// so must the stream on which it is freed.
template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "kernels and copies move elements byte by byte");

 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    if (this == &other) return *this;
    Free();
    allocator_ = other.allocator_;
    stream_ = other.stream_;
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~DeviceBuffer() { Free(); }

  // `size` >= 0 elements of any content. ResourceExhausted if memory runs out.
  static StatusOr<DeviceBuffer> Allocate(DeviceAllocator* allocator, cudaStream_t stream, int64_t size) {
    if (size > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T))) {
      return ResourceExhausted("cannot allocate ", size, " elements of ", sizeof(T), " bytes on the device");
    }
    StatusOr<void*> memory = allocator->Allocate(stream, size * static_cast<int64_t>(sizeof(T)));
    if (!memory.ok()) return memory.status();
    DeviceBuffer buffer;
    buffer.allocator_ = allocator;
    buffer.stream_ = stream;
    buffer.data_ = static_cast<T*>(memory.value());
    buffer.size_ = size;
    return StatusOr<DeviceBuffer>(std::move(buffer));
  }

  // Elements in device memory, which the host must not read.
  T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

  // Sets the stream on which the memory will be freed, by default that of Allocate. Every use must come
  // before later work on that stream.
  void set_stream(cudaStream_t stream) { stream_ = stream; }

  // Frees the memory; the buffer is empty then.
  void Free() {
    if (data_ != nullptr) allocator_->Free(stream_, data_);
    data_ = nullptr;
    size_ = 0;
  }

 private:
  DeviceAllocator* allocator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_DEVICE_BUFFER_H_
