// Allocations.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/on_host/engine/block.h"
#include "cuda/on_host/engine/runtime.h"
#include "cuda/on_host/engine/schedule.h"
#include "cuda/on_host/on_host.h"

namespace sok::on_host {

Side SideOf(const void* address, size_t bytes) {
  if (!Memory().Owns(address)) return address == nullptr ? Side::kInvalid : Side::kPageable;
  const Allocation* const found = Memory().Find(address);
  if (found == nullptr || found->state == AllocationState::kFreed) return Side::kInvalid;
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - found->address);
  if (offset > found->bytes || bytes > found->bytes - offset) return Side::kInvalid;
  return found->kind == MemoryKind::kDevice ? Side::kDevice : Side::kPinned;
}

size_t DeviceBytesInUse() { return Memory().device_bytes_in_use(); }
void SetDeviceMemoryLimit(size_t bytes) { Memory().SetLimit(bytes); }

namespace {

cudaError_t AllocateNow(void** address, size_t bytes, MemoryKind kind) {
  if (address == nullptr) return cudaErrorInvalidValue;
  if (const cudaError_t error = CheckUsableHere()) return error;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (kind == MemoryKind::kDevice) CountAllocation();
  const Allocation* const allocation = Memory().Allocate(bytes, kind, true);
  if (allocation == nullptr) return cudaErrorMemoryAllocation;
  *address = allocation->address;
  return cudaSuccess;
}

// The live allocation that begins at `address`; null if there is none.
Allocation* FindBegin(const void* address, MemoryKind kind) {
  Allocation* const found = Memory().Find(address);
  if (found == nullptr || found->address != address || found->kind != kind) return nullptr;
  return found->state == AllocationState::kFreed || found->free_enqueued ? nullptr : found;
}

}  // namespace
}  // namespace sok::on_host

using namespace sok::on_host;  // NOLINT: the functions below are CUDA's, in the global namespace

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return Result(AllocateNow(address, bytes, MemoryKind::kDevice));
}
cudaError_t cudaMallocHost(void** address, size_t bytes, unsigned flags) {
  return cudaHostAlloc(address, bytes, flags);
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped;
  if ((flags & ~kKnown) != 0) return Result(cudaErrorInvalidValue);
  return Result(AllocateNow(address, bytes, MemoryKind::kPinned));
}

// Waits for all work, as in CUDA.
cudaError_t cudaFree(void* address) {
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  if (address == nullptr) return cudaSuccess;
  Allocation* const allocation = FindBegin(address, MemoryKind::kDevice);
  if (allocation == nullptr) return Result(cudaErrorInvalidValue);
  Queues().WaitForAll();
  Memory().Free(allocation);
  if (allocation->is_of_pool) MemoryPool::Get().CountFreed(allocation->bytes);
  return cudaSuccess;
}

// CUDA does not document that this waits, so it does not.
cudaError_t cudaFreeHost(void* address) {
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  if (address == nullptr) return cudaSuccess;
  Allocation* const allocation = FindBegin(address, MemoryKind::kPinned);
  if (allocation == nullptr) return Result(cudaErrorInvalidValue);
  Memory().Free(allocation);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  if (address == nullptr) return Result(cudaErrorInvalidValue);
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  CountAllocation();
  Allocation* const allocation = Memory().Allocate(bytes, MemoryKind::kDevice, false);
  if (allocation == nullptr) return Result(cudaErrorMemoryAllocation);
  *address = allocation->address;
  MemoryPool::Get().CountAllocated(bytes);
  Queues().Enqueue(stream, [allocation](CUstream_st*) { Memory().MakeLive(allocation); });
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return Result(error);
  if (address == nullptr) return cudaSuccess;
  Allocation* const allocation = FindBegin(address, MemoryKind::kDevice);
  if (allocation == nullptr) return Result(cudaErrorInvalidValue);
  allocation->free_enqueued = true;
  Queues().Enqueue(stream, [allocation](CUstream_st*) {
    Memory().Free(allocation);
    if (allocation->is_of_pool) MemoryPool::Get().CountFreed(allocation->bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr) return Result(cudaErrorInvalidValue);
  if (const cudaError_t error = CheckUsableHere()) return Result(error);
  *total_bytes = Memory().limit();
  *free_bytes = *total_bytes - std::min(*total_bytes, Memory().device_bytes_in_use());
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  if (attributes == nullptr) return Result(cudaErrorInvalidValue);
  const Side side = address == nullptr ? Side::kPageable : SideOf(address, 1);
  void* const pointer = const_cast<void*>(address);
  *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, nullptr};
  if (side == Side::kDevice) *attributes = {cudaMemoryTypeDevice, 0, pointer, nullptr};
  if (side == Side::kPinned) *attributes = {cudaMemoryTypeHost, 0, pointer, pointer};
  if (side == Side::kPageable) attributes->hostPointer = pointer;
  return cudaSuccess;
}

namespace sok::on_host {
namespace {

// cudaMemcpy, cudaMemset and their asynchronous variants.

bool IsAllowed(cudaMemcpyKind kind, Side to, Side from) {
  const auto host = [](Side side) { return side != Side::kDevice; };
  const auto device = [](Side side) { return side != Side::kPageable; };  // pinned memory is the device's too
  switch (kind) {
    case cudaMemcpyHostToHost:
      return host(to) && host(from);
    case cudaMemcpyHostToDevice:
      return device(to) && host(from);
    case cudaMemcpyDeviceToHost:
      return host(to) && device(from);
    case cudaMemcpyDeviceToDevice:
      return device(to) && device(from);
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// Called when the work runs: freeing memory while work waits for it is a mistake of the program.
void CheckUsable(const char* what, const void* address) {
  const Allocation* const found = Memory().Find(address);
  if (Memory().Owns(address) && (found == nullptr || found->state != AllocationState::kLive)) {
    Report({}, "%s, when its stream reached it, touched %s", what, DescribeAddress(address).c_str());
  }
}

Work CopyWork(void* to, const void* from, size_t bytes, std::shared_ptr<std::vector<char>> staged) {
  return [=](CUstream_st* stream) {
    CheckUsable("a copy", to);
    if (staged == nullptr) CheckUsable("a copy", from);
    const DeviceAccess access;
    Memory().OpenAt(to, bytes);
    Memory().OpenAt(from, bytes);
    const AsStream as_stream(stream);
    std::memmove(to, staged == nullptr ? from : staged->data(), bytes);
  };
}

// How a copy synchronizes with the host, by CUDA's "API synchronization behavior".
struct CopyCall {
  void* to;
  const void* from;
  size_t bytes;
  cudaMemcpyKind kind;
  bool is_async;
};

cudaError_t Copy(const CopyCall& call, cudaStream_t handle) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return error;
  if (static_cast<unsigned>(call.kind) > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (call.bytes == 0) return cudaSuccess;
  const Side to = SideOf(call.to, call.bytes), from = SideOf(call.from, call.bytes);
  if (to == Side::kInvalid || from == Side::kInvalid || !IsAllowed(call.kind, to, from))
    return cudaErrorInvalidValue;

  std::shared_ptr<std::vector<char>> staged;
  if (from == Side::kPageable && to == Side::kDevice) {
    if (!call.is_async) Queues().WaitFor(Queues().Last(stream));
    const char* const bytes = static_cast<const char*>(call.from);
    staged = std::make_shared<std::vector<char>>(call.bytes);
    std::memcpy(staged->data(), bytes, call.bytes);
  }
  const bool on_host = to != Side::kDevice && from != Side::kDevice;
  const bool only_on_device = to == Side::kDevice && from == Side::kDevice;
  const bool waits =
      on_host || to == Side::kPageable || (!call.is_async && staged == nullptr && !only_on_device);
  const MarkPtr done = Queues().Enqueue(stream, CopyWork(call.to, call.from, call.bytes, std::move(staged)));
  const auto bytes = static_cast<int64_t>(call.bytes);
  CountTransfer(from == Side::kDevice && to != Side::kDevice ? bytes : 0,
                from != Side::kDevice && to == Side::kDevice ? bytes : 0);
  if (waits) Queues().WaitFor(done);
  return cudaSuccess;
}

cudaError_t Set(void* address, int byte, size_t bytes, cudaStream_t handle, bool is_async) {
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(handle, &stream)) return error;
  if (bytes == 0) return cudaSuccess;
  const Side side = SideOf(address, bytes);
  if (side != Side::kDevice && side != Side::kPinned) return cudaErrorInvalidValue;
  const MarkPtr done = Queues().Enqueue(stream, [=](CUstream_st* of) {
    CheckUsable("a memset", address);
    const DeviceAccess access;
    Memory().OpenAt(address, bytes);
    const AsStream as_stream(of);
    std::memset(address, byte, bytes);
  });
  CountTransfer(0, 0);
  if (!is_async && side == Side::kPinned) Queues().WaitFor(done);
  return cudaSuccess;
}

}  // namespace
}  // namespace sok::on_host

using namespace sok::on_host;  // NOLINT: the functions below are CUDA's, in the global namespace

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Result(Copy({to, from, bytes, kind, false}, nullptr));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Result(Copy({to, from, bytes, kind, true}, stream));
}
cudaError_t cudaMemset(void* address, int byte, size_t bytes) {
  return Result(Set(address, byte, bytes, nullptr, false));
}
cudaError_t cudaMemsetAsync(void* address, int byte, size_t bytes, cudaStream_t stream) {
  return Result(Set(address, byte, bytes, stream, true));
}
