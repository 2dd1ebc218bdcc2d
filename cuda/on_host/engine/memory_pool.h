// The pool of cudaMallocAsync: how much memory it would hold on a device. What it holds beside the memory in
// use is only counted; DeviceMemory has the memory.
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
  // Gives back what is free, as far as the pool then holds `bytes_to_keep`.
  void TrimTo(uint64_t bytes_to_keep);
  // What a wait for the device does.
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
