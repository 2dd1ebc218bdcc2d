// Fills runs of an array, one for each lane. For kernels: only .cu files include this header.
#ifndef SOK_CUDA_SCAN_FILL_RUNS_H_
#define SOK_CUDA_SCAN_FILL_RUNS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cuda/atomic>

#include "cuda/base/launch.h"

namespace sok {

// values[begin..end) = value.
struct Run {
  int64_t begin;
  int64_t end;
  int32_t value;
};

// Runs longer than this are filled by all lanes of the warp.
constexpr int64_t kRunOfLane = 16;

// Fills the run of each lane; a run with begin >= end is empty. All 32 lanes of the warp must call it. The
// stores are atomic, because the runs of invalid inputs may overlap; then any of the values remains.
__device__ __forceinline__ void FillRuns(int32_t* values, const Run& run) {
  const auto store = [values](int64_t i, int32_t value) {
    cuda::atomic_ref<int32_t, cuda::thread_scope_device>(values[i]).store(value,
                                                                          cuda::std::memory_order_relaxed);
  };
  const int64_t length = run.end - run.begin;
  if (length <= kRunOfLane) {
    for (int64_t i = run.begin; i < run.end; ++i) store(i, run.value);
  }
  unsigned long_runs = __ballot_sync(kAllLanes, length > kRunOfLane);
  for (; long_runs != 0; long_runs &= long_runs - 1) {
    const int lane = __ffs(static_cast<int>(long_runs)) - 1;
    const auto begin = static_cast<int64_t>(__shfl_sync(kAllLanes, static_cast<long long>(run.begin), lane));
    const auto end = static_cast<int64_t>(__shfl_sync(kAllLanes, static_cast<long long>(run.end), lane));
    const int32_t value = __shfl_sync(kAllLanes, run.value, lane);
    for (int64_t i = begin + threadIdx.x % 32; i < end; i += 32) store(i, value);
  }
}

}  // namespace sok

#endif  // SOK_CUDA_SCAN_FILL_RUNS_H_
