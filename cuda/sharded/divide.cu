#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/sharded/divide.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    DivisionKernel(const float* values, int64_t n, float divisor, float* quotients) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) quotients[i] = values[i] / divisor;
}

}  // namespace

Status EnqueueDivision(cudaStream_t stream, const float* values, int64_t n, float divisor, float* quotients) {
  return Launch("Division", stream, ShapeFor(n), DivisionKernel, values, n, divisor, quotients);
}

}  // namespace sok
