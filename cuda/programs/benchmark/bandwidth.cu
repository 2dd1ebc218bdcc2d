#include "cuda/base/launch.h"
#include "cuda/programs/benchmark/bandwidth.h"

namespace sok {
namespace {

constexpr uint32_t kSought = 0x7fffffffu;
constexpr int kLoads = 4;  // in flight in a thread

__device__ __forceinline__ bool Has(const uint4& words) {
  return words.x == kSought || words.y == kSought || words.z == kSought || words.w == kSought;
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    ReadKernel(const uint4* values, int64_t n, int32_t* found) {
  AwaitPreviousKernels();
  const int64_t threads = ThreadsOfGrid();
  bool has = false;
  int64_t i = ThreadOfGrid();
  for (; i + (kLoads - 1) * threads < n; i += kLoads * threads) {
    uint4 words[kLoads];
    for (int k = 0; k < kLoads; ++k) words[k] = values[i + k * threads];
    for (int k = 0; k < kLoads; ++k) has = Has(words[k]) || has;
  }
  for (; i < n; i += threads) has = Has(values[i]) || has;
  if (has) atomicMax(found, 1);
}

}  // namespace

Status ReadAll(cudaStream_t stream, const float* values, int64_t n, int32_t* found) {
  const int64_t fours = n / 4;
  return Launch("Read", stream, ShapeFor((fours + kLoads - 1) / kLoads), ReadKernel,
                reinterpret_cast<const uint4*>(values), fours, found);
}

}  // namespace sok
