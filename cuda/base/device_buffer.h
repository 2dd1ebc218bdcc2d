// An array in memory of a DeviceAllocator.
#ifndef SOK_CUDA_BASE_DEVICE_BUFFER_H_
#define SOK_CUDA_BASE_DEVICE_BUFFER_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "cc/base/status.h"

namespace sok {

// CUDA's errors as statuses.

// OK for cudaSuccess. ResourceExhausted if memory runs out, Internal for every other error; the message
// starts with `what...`, which says what failed, as in "cannot copy 12 bytes". Also clears the runtime's last
// error, which the next caller of cudaGetLastError would get otherwise.
template <typename... What>
Status CudaStatus(cudaError_t error, const What&... what) {
  if (error == cudaSuccess) return OkStatus();
  cudaGetLastError();
  const std::string message =
      StrCat(what..., ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  if (error == cudaErrorMemoryAllocation) return ResourceExhausted(message);
  return Internal(message);
}

// Where device memory comes from.

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
    SOK_ASSIGN_OR_RETURN(void* memory, allocator->Allocate(stream, size * static_cast<int64_t>(sizeof(T))));
    DeviceBuffer buffer;
    buffer.allocator_ = allocator;
    buffer.stream_ = stream;
    buffer.data_ = static_cast<T*>(memory);
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

// An array on the device whose memory is reused from step to step. Move-only.
template <typename T>
class ReusableArray {
 public:
  // At least `size` elements of any content, for work on this stream.
  Status Resize(cudaStream_t stream, DeviceAllocator* allocator, int64_t size) {
    if (size <= buffer_.size()) return OkStatus();
    // Frees the old memory first: both together may not fit.
    buffer_.Free();
    SOK_ASSIGN_OR_RETURN(buffer_, DeviceBuffer<T>::Allocate(allocator, stream, size + size / 4));
    return OkStatus();
  }

  T* data() const { return buffer_.data(); }

 private:
  DeviceBuffer<T> buffer_;
};

}  // namespace sok

// Returns from the calling function if `expr`, a cudaError_t, is an error. The other arguments make the
// message, and are evaluated only then.
#define SOK_RETURN_IF_CUDA_ERROR(expr, ...)                                                     \
  do {                                                                                          \
    const cudaError_t sok_cuda_error_ = (expr);                                                 \
    if (sok_cuda_error_ != cudaSuccess) return ::sok::CudaStatus(sok_cuda_error_, __VA_ARGS__); \
  } while (false)

#endif  // SOK_CUDA_BASE_DEVICE_BUFFER_H_
