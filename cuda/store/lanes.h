// Threads that share the columns of a row. For kernels: only .cu files include it.
#ifndef SOK_CUDA_STORE_LANES_H_
#define SOK_CUDA_STORE_LANES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/base/grid.h"

namespace sok {

// log2 of the threads for a row of `floats` columns: the next power of two, at most a warp.
inline int LaneBitsFor(int64_t floats) {
  int bits = 0;
  while (bits < 5 && (int64_t{1} << bits) < floats) ++bits;
  return bits;
}

// 2^bits adjacent threads of the grid work on a row together, and take its columns in turn.
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
