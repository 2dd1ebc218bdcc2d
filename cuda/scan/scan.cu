#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/stable_sort.h"

namespace sok {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;

__global__ __launch_bounds__(kThreads) void ExclusiveSumKernel(int32_t* values, int64_t n) {
  AwaitPreviousKernels();
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

namespace {

// Bits of the largest key; at least one, so that pairs of one key are copied, too.
int BitsOf(int64_t num_keys) {
  int bits = 1;
  while (bits < 32 && num_keys > int64_t{1} << bits) ++bits;
  return bits;
}

}  // namespace

Status StableSort(cudaStream_t stream, DeviceAllocator* scratch, int64_t n, int64_t num_keys,
                  const uint32_t* keys, const int32_t* values, uint32_t* sorted_keys,
                  int32_t* sorted_values) {
  if (n == 0) return OkStatus();
  const auto sort = [&](void* memory, size_t& bytes) {
    return CudaStatus(cub::DeviceRadixSort::SortPairs(memory, bytes, keys, sorted_keys, values, sorted_values,
                                                      static_cast<int>(n), 0, BitsOf(num_keys), stream),
                      "cannot sort ", n, " numbers");
  };
  size_t bytes = 0;
  SOK_RETURN_IF_ERROR(sort(nullptr, bytes));
  // CUB's call only returns the required bytes if it gets no memory, so never pass null.
  bytes = std::max<size_t>(bytes, 1);
  SOK_ASSIGN_OR_RETURN(auto memory,
                       DeviceBuffer<char>::Allocate(scratch, stream, static_cast<int64_t>(bytes)));
  return sort(memory.data(), bytes);
}

}  // namespace sok
