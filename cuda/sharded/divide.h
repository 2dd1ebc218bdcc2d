// Gradients divided by the number of ranks.
#ifndef SOK_CUDA_SHARDED_DIVIDE_H_
#define SOK_CUDA_SHARDED_DIVIDE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"

namespace sok {

// quotients[i] = values[i] / divisor for i < n, on the device. `quotients` may be `values`.
Status EnqueueDivision(cudaStream_t stream, const float* values, int64_t n, float divisor, float* quotients);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_DIVIDE_H_
