// Prefix sums over the lanes of a warp. For kernels: only .cu files include this header.
#ifndef SOK_CUDA_SCAN_WARP_SCAN_H_
#define SOK_CUDA_SCAN_WARP_SCAN_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/base/launch.h"

namespace sok {

// The sum of `value` over this lane and those before it. All 32 lanes of the warp must call it.
__device__ __forceinline__ int32_t InclusiveSumInWarp(int32_t value) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned delta = 1; delta < 32; delta *= 2) {
    const int32_t other = __shfl_up_sync(kAllLanes, value, delta);
    if (lane >= delta) value += other;
  }
  return value;
}

}  // namespace sok

#endif  // SOK_CUDA_SCAN_WARP_SCAN_H_
