// Host memory that the device can reach.
#ifndef SOK_CUDA_BASE_PINNED_H_
#define SOK_CUDA_BASE_PINNED_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// `size` elements in pinned host memory, which copies and kernels can use. Allocating and freeing is slow and
// may wait for the device, so keep buffers. No work that is still in a stream may use a buffer when it is
// freed. Move-only.
template <typename T>
class PinnedBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "copies move elements byte by byte");

 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PinnedBuffer() {
    if (data_ != nullptr && cudaFreeHost(data_) != cudaSuccess) cudaGetLastError();
  }

  // `size` >= 0 elements of any content. ResourceExhausted if memory runs out.
  static StatusOr<PinnedBuffer> Allocate(int64_t size) {
    if (size > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T))) {
      return ResourceExhausted("cannot pin ", size, " elements of ", sizeof(T), " bytes");
    }
    PinnedBuffer buffer;
    if (size == 0) return StatusOr<PinnedBuffer>(std::move(buffer));
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
    void* memory = nullptr;
    SOK_RETURN_IF_CUDA_ERROR(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                             "cannot pin ", bytes, " bytes of the host's memory");
    buffer.data_ = static_cast<T*>(memory);
    buffer.size_ = size;
    return StatusOr<PinnedBuffer>(std::move(buffer));
  }

  // The same address on host and device.
  T* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_PINNED_H_
