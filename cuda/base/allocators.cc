#include "cuda/base/allocators.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/base/device_buffer.h"

namespace sok {
namespace {

cudaError_t SetReleaseThreshold(int device, uint64_t bytes) {
  cudaMemPool_t pool = nullptr;
  const cudaError_t error = cudaDeviceGetMemPool(&pool, device);
  if (error != cudaSuccess) return error;
  return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes);
}

}  // namespace

void AsyncAllocator::KeepFreedMemory() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  const uint64_t bit = uint64_t{1} << (device % 64);
  if ((told_devices_.load(std::memory_order_relaxed) & bit) != 0) return;
  told_devices_.fetch_or(bit, std::memory_order_relaxed);
  // If this fails, allocations are slower; nothing else changes.
  if (SetReleaseThreshold(device, std::numeric_limits<uint64_t>::max()) != cudaSuccess) cudaGetLastError();
}

StatusOr<void*> AsyncAllocator::Allocate(cudaStream_t stream, int64_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return memory;
  KeepFreedMemory();
  SOK_RETURN_IF_CUDA_ERROR(cudaMallocAsync(&memory, static_cast<size_t>(bytes), stream), "cannot allocate ",
                           bytes, " bytes on the device");
  return memory;
}

void AsyncAllocator::Free(cudaStream_t stream, void* memory) {
  // This fails only if the device is lost or the program is exiting; the memory is then gone.
  if (memory != nullptr && cudaFreeAsync(memory, stream) != cudaSuccess) cudaGetLastError();
}

PinnedAllocator::~PinnedAllocator() {
  for (const Freed& freed : freed_) {
    // After an error of the device nothing uses the memory any more.
    (void)freed.last_use.Wait().ok();
  }
}

StatusOr<void*> PinnedAllocator::Allocate(cudaStream_t, int64_t bytes) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  const MutexLock lock(mutex_);
  ReleaseFreed();
  SOK_ASSIGN_OR_RETURN(auto buffer, PinnedBuffer<char>::Allocate(bytes));
  void* const memory = buffer.data();
  allocated_.emplace(memory, std::move(buffer));
  return memory;
}

void PinnedAllocator::Free(cudaStream_t stream, void* memory) {
  if (memory == nullptr) return;
  const MutexLock lock(mutex_);
  const auto found = allocated_.find(memory);
  Freed freed{std::move(found->second), Event()};
  allocated_.erase(found);
  // If no event can be recorded, the device is lost, and nothing uses the memory any more.
  if (freed.last_use.Record(stream).ok()) freed_.push_back(std::move(freed));
  ReleaseFreed();
}

void PinnedAllocator::ReleaseFreed() {
  freed_.erase(std::remove_if(freed_.begin(), freed_.end(),
                              [](const Freed& freed) { return freed.last_use.IsDone(); }),
               freed_.end());
}

}  // namespace sok
