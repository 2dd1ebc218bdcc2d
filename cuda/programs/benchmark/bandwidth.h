// The memory bandwidth that bounds kernels.
#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_BANDWIDTH_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_BANDWIDTH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"

namespace sok {

// Reads all of values[n] in order, n a multiple of 4 and `values` aligned to 16 bytes, on the device. Writes
// found[0] if a value is the NaN with bits 0x7fffffff, so that the compiler cannot drop the reads. One
// kernel.
Status ReadAll(cudaStream_t stream, const float* values, int64_t n, int32_t* found);

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_BANDWIDTH_H_
