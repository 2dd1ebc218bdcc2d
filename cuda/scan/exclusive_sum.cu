#include "cuda/base/launch.h"
#include "cuda/scan/exclusive_sum.h"
#include "cuda/scan/warp_scan.h"

namespace sok {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

__global__ __launch_bounds__(kThreads) void ExclusiveSumKernel(int32_t* values, int64_t n) {
  __shared__ int32_t warp_sums[32];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int32_t before = 0;
  for (int64_t base = 0; base < n; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    const int32_t value = i < n ? values[i] : 0;
    const int32_t in_warp = InclusiveSumInWarp(value);
    if (lane == 31) warp_sums[warp] = in_warp;
    __syncthreads();
    if (warp == 0) {
      const int32_t sums = InclusiveSumInWarp(lane < kWarps ? warp_sums[lane] : 0);
      warp_sums[lane] = sums;
    }
    __syncthreads();
    if (i < n) values[i] = before + (warp == 0 ? 0 : warp_sums[warp - 1]) + in_warp - value;
    before += warp_sums[kWarps - 1];
    // The sums are overwritten in the next round.
    __syncthreads();
  }
}

}  // namespace

Status ExclusiveSum(cudaStream_t stream, int32_t* values, int64_t n) {
  return Launch("ExclusiveSum", stream, {n > 0 ? 1 : 0, kThreads, 0}, ExclusiveSumKernel, values, n);
}

}  // namespace sok
