// The place of a CUDA thread in a grid of one dimension, and the lanes of its warp. For kernels: only .cu
// files include it.
//
//   for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) ...
#ifndef SOK_CUDA_BASE_GRID_H_
#define SOK_CUDA_BASE_GRID_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace sok {

constexpr int kLanesOfWarp = 32;
// The mask of all lanes, for functions of warps.
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int64_t ThreadOfGrid() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ int64_t ThreadsOfGrid() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}  // namespace sok

#endif  // SOK_CUDA_BASE_GRID_H_
