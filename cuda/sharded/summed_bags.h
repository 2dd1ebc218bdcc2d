// The asking rank's work on bags that the owners have summed.
#ifndef SOK_CUDA_SHARDED_SUMMED_BAGS_H_
#define SOK_CUDA_SHARDED_SUMMED_BAGS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// Bag b has bag_begin[b + 1] - bag_begin[b] ids. Arrays on the device.
struct DividedSums {
  const int32_t* bag_begin = nullptr;  // [bags + 1]
  int64_t bags = 0;
  Combiner combiner = Combiner::kSum;
  int64_t dim = 0;
  OutputRows output;  // [bags, dim]: sums
};
// Divides the sums of bags without weights as their combiner requires, with the bits of BagDivisor and
// DivideUnweighted (cc/lookup/divisor.h). Internal if a kernel cannot be launched.
Status EnqueueDivisions(cudaStream_t stream, Span<const DividedSums> sums);

// The gradients of some sums: out[k, 0..dim) is the gradient of bag bags[k], scaled as it reaches each row.
struct GradientsOfSums {
  const int32_t* bag_begin = nullptr;
  Combiner combiner = Combiner::kSum;
  int64_t dim = 0;
  GradientRows gradient;
  const int32_t* bags = nullptr;  // [sums]
  int64_t sums = 0;
  float* out = nullptr;
};
Status EnqueueSumGradients(cudaStream_t stream, Span<const GradientsOfSums> gradients);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_SUMMED_BAGS_H_
