// Memory that stands in for a GPU's, and pinned memory of the host.
//
// The host can touch device memory only while a kernel or a copy runs: by protection keys where the processor
// has them, otherwise by mprotect, which opens it for all threads. Every allocation ends at a page that is
// never mapped, up to the 256 bytes that CUDA aligns to; the access hooks and AddressSanitizer see those
// bytes too. No address is given out twice. Fresh memory holds a pattern that is a signalling NaN as a float;
// with SOK_ON_HOST_FILL=0 it holds zeros, and takes memory of the machine only where it is touched.
//
// Thread safety: all functions. Find may run beside the others.
#ifndef SOK_CUDA_ON_HOST_ENGINE_DEVICE_MEMORY_H_
#define SOK_CUDA_ON_HOST_ENGINE_DEVICE_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace sok::on_host {

constexpr uint32_t kPoison = 0x7fbadbad;
// Fills memory with the pattern, unseen by the sanitizers.
void FillWithPoison(void* address, size_t bytes);

enum class MemoryKind { kDevice, kPinned };

enum class AllocationState {
  kReserved,  // the stream has not reached its cudaMallocAsync
  kLive,
  kFreed,
};

struct Allocation {
  char* address;
  size_t bytes;
  MemoryKind kind;
  std::atomic<AllocationState> state;
  bool is_of_pool;  // from cudaMallocAsync
  bool free_enqueued;
};

class DeviceMemory {
 public:
  static DeviceMemory& Get();

  // Null if the limit would be exceeded. `live` is false for memory that MakeLive makes usable later.
  Allocation* Allocate(size_t bytes, MemoryKind kind, bool live);
  void MakeLive(Allocation* allocation);
  void Free(Allocation* allocation);

  // The allocation that `address` is in or, as the 255 bytes behind it belong to none, just behind. Freed
  // ones included; null elsewhere.
  Allocation* Find(const void* address) const;
  // Whether `address` is in the part of the address space that device or pinned memory has.
  bool Owns(const void* address) const;

  size_t device_bytes_in_use() const { return in_use_[0]; }
  void SetLimit(size_t bytes) { limit_ = bytes; }
  size_t limit() const { return limit_; }

  // Lets the calling thread use device memory until EndAccess (every thread, without protection keys). They
  // nest.
  void BeginAccess();
  void EndAccess();

 private:
  DeviceMemory();
  void Protect(const Allocation& allocation, int protection) const;
  // `bytes` from the begin of closed memory.
  void Fill(const Allocation& allocation, size_t bytes) const;
  bool IsClosed(const Allocation& allocation) const;

  char* base_ = nullptr;
  uint32_t* allocation_of_page_ = nullptr;  // 1 + index into allocations_; 0: none
  Allocation* allocations_ = nullptr;
  int key_ = -1;

  std::mutex mutex_;
  size_t next_page_ = 1;
  std::atomic<size_t> num_allocations_{0};
  std::set<Allocation*> live_device_memory_;
  std::atomic<size_t> in_use_[2] = {};
  std::atomic<size_t> limit_{size_t{80} << 30};
  bool fills_fresh_ = true;
  int open_ = 0;
};

// Opens device memory for as long as it lives.
class DeviceAccess {
 public:
  DeviceAccess() { DeviceMemory::Get().BeginAccess(); }
  ~DeviceAccess() { DeviceMemory::Get().EndAccess(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// "400 bytes past the end of 1024 bytes of device memory at 0x...", for reports.
std::string DescribeAddress(const void* address);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_DEVICE_MEMORY_H_
