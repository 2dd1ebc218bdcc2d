// What the parts of the runtime API share.
#ifndef SOK_CUDA_ON_HOST_ENGINE_RUNTIME_H_
#define SOK_CUDA_ON_HOST_ENGINE_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "cuda/on_host/engine/device_memory.h"
#include "cuda/on_host/engine/streams.h"
#include "cuda_on_host/runtime_api.h"

namespace sok::on_host {

// Keeps an error for cudaGetLastError of the calling thread, and returns it.
cudaError_t Result(cudaError_t error);

inline StreamQueues& Queues() { return StreamQueues::Get(); }
inline DeviceMemory& Memory() { return DeviceMemory::Get(); }

// Whether memory, streams and events can be used here: not in a function of cudaLaunchHostFunc, and not in a
// process that was forked from one that has called the runtime.
cudaError_t CheckUsableHere();

// The stream of a handle, if it can be used here.
cudaError_t FindStream(cudaStream_t handle, CUstream_st** stream);

enum class Side { kPageable, kPinned, kDevice, kInvalid };

// Where the bytes are. Invalid if they are not within one allocation that is live or about to be.
Side SideOf(const void* address, size_t bytes);

// The pool of cudaMallocAsync: how much memory it would hold on a device. Its unused memory is only counted;
// the actual memory is DeviceMemory's.

// Thread-safe.
class MemoryPool {
 public:
  static MemoryPool& Get();

  void CountAllocated(size_t bytes);
  void CountFreed(size_t bytes);
  // Releases free memory until the pool holds at most `bytes_to_keep`, as far as possible.
  void TrimTo(uint64_t bytes_to_keep);
  // Called when the host waits for the device: trims to the release threshold.
  void TrimToThreshold();

  struct Bytes {
    uint64_t reserved = 0;
    uint64_t used = 0;
    uint64_t threshold = 0;
  };
  Bytes bytes() const;
  void set_threshold(uint64_t bytes);

 private:
  mutable std::mutex mutex_;
  Bytes bytes_;
};

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_RUNTIME_H_
