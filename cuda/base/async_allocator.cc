#include "cuda/base/async_allocator.h"

#include <limits>

#include "cuda/base/cuda_status.h"

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

}  // namespace sok
