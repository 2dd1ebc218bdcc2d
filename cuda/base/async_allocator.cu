#include "cuda/base/async_allocator.h"
#include "cuda/base/cuda_status.h"

namespace sok {

StatusOr<void*> AsyncAllocator::Allocate(cudaStream_t stream, int64_t bytes) {
  void* memory = nullptr;
  if (bytes == 0) return memory;
  SOK_RETURN_IF_CUDA_ERROR(cudaMallocAsync(&memory, static_cast<size_t>(bytes), stream), "cannot allocate ",
                           bytes, " bytes on the device");
  return memory;
}

void AsyncAllocator::Free(cudaStream_t stream, void* memory) {
  // It fails only on a device that is lost, or for a program that ends: then the memory is gone.
  if (memory != nullptr && cudaFreeAsync(memory, stream) != cudaSuccess) cudaGetLastError();
}

}  // namespace sok
