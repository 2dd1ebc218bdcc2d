// Only .cu files include this header.
#ifndef SOK_CUDA_ROWS_PREFETCH_H_
#define SOK_CUDA_ROWS_PREFETCH_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace sok {

// Prefetches n floats, which begin at a multiple of 16 bytes, into the device's cache, without waiting and
// without using registers. Reads up to 3 floats behind them, so their memory must end at a multiple of 16
// bytes. Does nothing on the host.
__device__ __forceinline__ void PrefetchFloats(const float* floats, int64_t n) {
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  const auto bytes = static_cast<uint32_t>((n + 3) / 4 * 16);
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(floats)),
               "r"(bytes));
#else
  constexpr int kFloatsOfSector = 8;
  for (int64_t i = 0; i < n; i += kFloatsOfSector) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(floats + i));
  }
#endif
#else
  static_cast<void>(floats);
  static_cast<void>(n);
#endif
}

}  // namespace sok

#endif  // SOK_CUDA_ROWS_PREFETCH_H_
