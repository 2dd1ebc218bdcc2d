// Memory that stands in for a GPU's, and pinned host memory.
//
// The host can touch device memory only while a kernel or a copy runs: by protection keys if the processor
// has them, otherwise by mprotect. mprotect takes as long as the pages are many, so a piece of an allocation
// is opened only when a thread that may use device memory touches it, and is then open for all threads until
// the last such thread has finished. Every allocation ends at a page that is never mapped, up to the 256
// bytes that CUDA aligns to; the access hooks and AddressSanitizer see those bytes too. No address is used
// twice. Fresh memory holds a pattern that is a signalling NaN as a float; with SOK_ON_HOST_FILL=0 it holds
// zeros, and only touched pages take the machine's memory.
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

// Memory straight from the system, which the sanitizers do not see being mapped: they would clear the shadow
// of all of it, and treat it as written by the thread that maps it.

constexpr size_t kPage = 4096;  // bytes

// Zeros, backed by memory once touched, followed by `forbidden` bytes that nothing may touch. Both are whole
// pages. Ends the process if the system refuses.
char* MapMemory(size_t bytes, size_t forbidden);
// From now on nothing may touch the pages.
void ForbidMemory(char* begin, size_t bytes);
// The same, and the system gets their memory back. New pages take their place: protected ones would stay a
// mapping of their own, apart from forbidden pages beside them, and the system limits a process to 65530.
void ReturnMemory(char* begin, size_t bytes);

constexpr uint32_t kPoison = 0x7fbadbad;
// Fills memory with the pattern, without the sanitizers noticing.
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
  bool was_open;  // in part
};

// Whole pages.
struct Pages {
  char* begin;
  size_t bytes;
};

class DeviceMemory {
 public:
  static DeviceMemory& Get();

  // Null if the limit would be exceeded. `live` is false for memory that becomes usable by MakeLive.
  Allocation* Allocate(size_t bytes, MemoryKind kind, bool live);
  void MakeLive(Allocation* allocation);
  void Free(Allocation* allocation);

  // The allocation that contains `address`, or that ends at most 255 bytes before it, as those bytes belong
  // to no other. Includes freed ones; null if there is none.
  Allocation* Find(const void* address) const;
  // Whether `address` is in the part of the address space that is reserved for device and pinned memory.
  bool Owns(const void* address) const;

  size_t device_bytes_in_use() const { return in_use_[0]; }
  void SetLimit(size_t bytes) { limit_ = bytes; }
  size_t limit() const { return limit_; }

  // Lets the calling thread use device memory until EndAccess. Calls nest.
  void BeginAccess();
  void EndAccess();
  // Suspends that access: pass the result to ResumeAccess.
  int SuspendAccess();
  void ResumeAccess(int depth);
  // Opens the pieces of a live allocation that contain these bytes. False if there are none, or if the
  // calling thread may not use them. Takes no lock that ThreadSanitizer sees and allocates nothing, as it
  // runs in kernels and in a signal handler.
  bool OpenAt(const void* address, size_t bytes);
  // Whether bytes of a live allocation are in one piece that is accessible to threads that may use it.
  bool IsOpen(const Allocation& allocation, const void* address, size_t bytes) const {
    const Pages piece = PieceAt(allocation, address);
    return static_cast<const char*>(address) + bytes <= piece.begin + piece.bytes &&
           is_open_[PageOf(piece.begin)];
  }

 private:
  DeviceMemory();
  // Whether pieces of the allocation are closed while nothing uses them. With protection keys, mapped memory
  // is already closed to threads that may not use it.
  bool IsOpenedOnTouch(const Allocation& allocation) const {
    return allocation.kind == MemoryKind::kDevice && key_ < 0;
  }
  // What is opened together.
  Pages PieceAt(const Allocation& allocation, const void* address) const;
  size_t PageOf(const void* address) const {
    return static_cast<size_t>(static_cast<const char*>(address) - base_) / kPage;
  }
  void BeLive(Allocation* allocation) const;
  bool OpenPiece(Allocation* allocation, const Pages& piece);
  // With opening_ held.
  void Open(Allocation* allocation, const Pages& piece);
  void Close(MemoryKind kind, const Pages& piece);
  void CloseOpened();
  void Use();
  void EndUse();
  void Protect(MemoryKind kind, const Pages& piece, int protection) const;
  // Memory that is mapped.
  void Fill(const Allocation& allocation, const Pages& piece) const;

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
  std::atomic_flag opening_ = ATOMIC_FLAG_INIT;  // held for the members below and protections
  std::atomic<bool>* is_open_ = nullptr;         // by the first page of a piece
  std::atomic<bool>* was_open_ = nullptr;
  Pages* opened_ = nullptr;  // to be closed again
  size_t num_opened_ = 0;
};

// Lets the calling thread use device memory while this object lives.
class DeviceAccess {
 public:
  DeviceAccess() { DeviceMemory::Get().BeginAccess(); }
  ~DeviceAccess() { DeviceMemory::Get().EndAccess(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// Keeps the calling thread from using device memory while this object lives: while a host function runs in a
// stream.
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

// Processor faults that are caused by wrong uses of device memory.

// From now on a fault at an address of device memory, or below the stack of a CUDA thread, becomes a report.
// Other faults go to the previous handler.
void ReportFaults();

// Gives the calling thread a stack on which a stack overflow can be reported.
void PrepareForFaults();

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_DEVICE_MEMORY_H_
