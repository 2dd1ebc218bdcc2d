// Threads that share the columns of a row. For kernels: only .cu files include it.
#ifndef SOK_CUDA_STORE_LANES_H_
#define SOK_CUDA_STORE_LANES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/base/launch.h"

namespace sok {

// 2^bits adjacent threads of the grid, at most a warp (LanesLog2 of cuda/base/part_launch.h), work on a row
// together, and take its columns in turn.
class Lanes {
 public:
  explicit __device__ Lanes(int bits) : bits_(bits) {}

  // The rows of this thread.
  __device__ int64_t first() const { return ThreadOfGrid() >> bits_; }
  __device__ int64_t step() const { return ThreadsOfGrid() >> bits_; }
  // This thread's number among those of the row, which is also its first column.
  __device__ int lane() const { return static_cast<int>(threadIdx.x) & (count() - 1); }
  __device__ int count() const { return 1 << bits_; }

 private:
  int bits_;
};

}  // namespace sok

#endif  // SOK_CUDA_STORE_LANES_H_
