// Memory that stands in for a GPU's, and pinned memory of the host.
//
// The host can touch device memory only while a kernel or a copy runs: by protection keys where the processor
// has them, otherwise by mprotect. That takes long, so an allocation is opened only when a thread that may
// use device memory touches it, and is then open for all threads until the last of these has done. Every
// allocation ends at a page that is never mapped, up to the 256 bytes that CUDA aligns to; the access hooks
// and AddressSanitizer see those bytes too. No address is given out twice. Fresh memory holds a pattern that
// is a signalling NaN as a float; with SOK_ON_HOST_FILL=0 it holds zeros, and takes memory of the machine
// only where it is touched.
//
// Thread safety: all functions. Find and OpenAt may run beside the others.
#ifndef SOK_CUDA_ON_HOST_ENGINE_DEVICE_MEMORY_H_
#define SOK_CUDA_ON_HOST_ENGINE_DEVICE_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
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
  // Whether its pages are mapped for those who may use it.
  std::atomic<bool> is_open;
  bool was_open;
  Allocation* next_opened;  // of those that are closed again
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

  // Lets the calling thread use device memory until EndAccess. They nest.
  void BeginAccess();
  void EndAccess();
  // Takes that back for a while: ResumeAccess gets what SuspendAccess returned.
  int SuspendAccess();
  void ResumeAccess(int depth);
  // Opens the live allocation that the address is in. False if there is none or the calling thread may not
  // use it. Takes no lock that ThreadSanitizer sees and no memory, as it runs in kernels and in a signal
  // handler.
  bool OpenAt(const void* address);

 private:
  DeviceMemory();
  // Whether it is closed between the times that something uses it.
  bool IsOpenedOnTouch(const Allocation& allocation) const;
  void BeLive(Allocation* allocation) const;
  // With opening_ held.
  void Open(Allocation* allocation);
  void Close(Allocation* allocation);
  void CloseOpened();
  void Use();
  void EndUse();
  void Protect(const Allocation& allocation, int protection) const;
  // Memory that is mapped.
  void Fill(const Allocation& allocation) const;

  char* base_ = nullptr;
  uint32_t* allocation_of_page_ = nullptr;  // 1 + index into allocations_; 0: none
  Allocation* allocations_ = nullptr;
  int key_ = -1;

  std::mutex mutex_;
  size_t next_page_ = 1;
  std::atomic<size_t> num_allocations_{0};
  std::atomic<size_t> in_use_[2] = {};
  std::atomic<size_t> limit_{size_t{80} << 30};
  bool fills_fresh_ = true;
  int num_using_ = 0;  // threads between BeginAccess and EndAccess, without protection keys
  std::atomic_flag opening_ = ATOMIC_FLAG_INIT;  // held for opened_, is_open and protections
  Allocation* opened_ = nullptr;
};

// Lets the calling thread use device memory for as long as it lives.
class DeviceAccess {
 public:
  DeviceAccess() { DeviceMemory::Get().BeginAccess(); }
  ~DeviceAccess() { DeviceMemory::Get().EndAccess(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// Keeps the calling thread from device memory for as long as it lives, as long as a function of the host runs
// in a stream.
class NoDeviceAccess {
 public:
  NoDeviceAccess() : depth_(DeviceMemory::Get().SuspendAccess()) {}
  ~NoDeviceAccess() { DeviceMemory::Get().ResumeAccess(depth_); }
  NoDeviceAccess(const NoDeviceAccess&) = delete;
  NoDeviceAccess& operator=(const NoDeviceAccess&) = delete;

 private:
  const int depth_;
};

// "400 bytes past the end of 1024 bytes of device memory at 0x...", for reports.
std::string DescribeAddress(const void* address);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_DEVICE_MEMORY_H_
