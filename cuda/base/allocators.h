// Host memory that kernels reach over the bus, for tables that do not fit on the device.
#ifndef SOK_CUDA_BASE_ALLOCATORS_H_
#define SOK_CUDA_BASE_ALLOCATORS_H_

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/event.h"
#include "cuda/base/pinned.h"

namespace sok {

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
// for the device (cuda/base/pinned.h). Thread-safe.
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
