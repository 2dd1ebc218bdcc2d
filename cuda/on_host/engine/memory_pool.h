// The pool of cudaMallocAsync: how much memory it would hold on a device. Its unused memory is only counted;
// the actual memory is DeviceMemory's.
#ifndef SOK_CUDA_ON_HOST_ENGINE_MEMORY_POOL_H_
#define SOK_CUDA_ON_HOST_ENGINE_MEMORY_POOL_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace sok::on_host {

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

  uint64_t reserved() const;
  uint64_t used() const;
  uint64_t threshold() const;
  void set_threshold(uint64_t bytes);

 private:
  mutable std::mutex mutex_;
  uint64_t reserved_ = 0;
  uint64_t used_ = 0;
  uint64_t threshold_ = 0;
};

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_MEMORY_POOL_H_
