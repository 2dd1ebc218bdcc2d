// Allocations.
#include <algorithm>

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
  constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
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

cudaError_t cudaHostGetDevicePointer(void** device_address, void* host_address, unsigned flags) {
  if (device_address == nullptr || flags != 0) return Result(cudaErrorInvalidValue);
  *device_address = nullptr;
  if (!Memory().Owns(host_address) || SideOf(host_address, 1) != Side::kPinned)
    return Result(cudaErrorInvalidValue);
  *device_address = host_address;
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
