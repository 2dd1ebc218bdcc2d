// Only .cu files include this header.
#ifndef SOK_CUDA_ROWS_PREFETCH_H_
#define SOK_CUDA_ROWS_PREFETCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/rows/part_launch.h"

namespace sok {

// Prefetches floats that the lanes of a group will read soon into the device's cache, without waiting and
// without using registers. Does nothing on the host.
__device__ __forceinline__ void PrefetchFloats(const LaneGroup& group, const float* floats, int64_t n) {
#ifdef __CUDA_ARCH__
  constexpr int kFloatsOfSector = 8;
  for (int64_t i = group.lane() * kFloatsOfSector; i < n; i += group.lanes() * kFloatsOfSector) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(floats + i));
  }
#else
  static_cast<void>(group);
  static_cast<void>(floats);
  static_cast<void>(n);
#endif
}

}  // namespace sok

#endif  // SOK_CUDA_ROWS_PREFETCH_H_
