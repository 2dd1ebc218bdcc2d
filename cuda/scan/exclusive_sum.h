// A scan of a small array.
#ifndef SOK_CUDA_SCAN_EXCLUSIVE_SUM_H_
#define SOK_CUDA_SCAN_EXCLUSIVE_SUM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"

namespace sok {

// Replaces values[i] by the sum of those before it; values[n] are on the device, and their sum fits int32.
// One block computes it: for arrays of a few thousand values, such as counts of tiles.
Status ExclusiveSum(cudaStream_t stream, int32_t* values, int64_t n);

}  // namespace sok

#endif  // SOK_CUDA_SCAN_EXCLUSIVE_SUM_H_
