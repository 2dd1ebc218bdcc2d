// Where memory comes from: pinned host memory for copies, CUDA's own pool, and host memory that kernels reach
// over the bus, for tables that do not fit on the device.
#ifndef SOK_CUDA_BASE_ALLOCATORS_H_
#define SOK_CUDA_BASE_ALLOCATORS_H_

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/event.h"

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

// Device memory from CUDA's own pool.

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

// Pinned memory. Allocate is slow: some milliseconds for 32 MiB. Freed memory returns to the system at a
// later call once the stream has passed Free, or on destruction, which waits for that. Both calls may wait
// for the device (cuda/base/allocators.h). Thread-safe.
class PinnedAllocator : public DeviceAllocator {
 public:
  ~PinnedAllocator() override;

  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override;
  void Free(cudaStream_t stream, void* memory) override;

 private:
  struct Freed {
    PinnedBuffer<char> memory;
    Event last_use;
  };

  void ReleaseFreed() SOK_REQUIRES(mutex_);

  Mutex mutex_;
  std::map<void*, PinnedBuffer<char>> allocated_ SOK_GUARDED_BY(mutex_);
  std::vector<Freed> freed_ SOK_GUARDED_BY(mutex_);
};

}  // namespace sok

#endif  // SOK_CUDA_BASE_ALLOCATORS_H_
