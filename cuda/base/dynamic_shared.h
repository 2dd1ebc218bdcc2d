// The dynamic shared memory of a block, for kernels compiled by nvcc and for the host.
#ifndef SOK_CUDA_BASE_DYNAMIC_SHARED_H_
#define SOK_CUDA_BASE_DYNAMIC_SHARED_H_

#include <cuda_runtime.h>

namespace sok {

// The bytes that the launch asked for (cudaLaunchConfig_t::dynamicSmemBytes), aligned to 16. Used in place of
// `extern __shared__ T name[]`, because code compiled for the host cannot find the block's memory by such a
// name.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
  static_assert(alignof(T) <= 16);
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char sok_dynamic_shared[];
  return reinterpret_cast<T*>(sok_dynamic_shared);
#else
  return static_cast<T*>(on_host::DynamicSharedMemory());
#endif
}

}  // namespace sok

#endif  // SOK_CUDA_BASE_DYNAMIC_SHARED_H_
