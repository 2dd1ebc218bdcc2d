#ifndef SOK_CUDA_POOLING_WEIGHT_GRADIENTS_H_
#define SOK_CUDA_POOLING_WEIGHT_GRADIENTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cuda/pooling/lookup_view.h"

namespace sok {

// The gradient of a weighted lookup's weights.
struct LookupWeightGradient {
  OccurrenceRows ids;  // the rows that the forward pass read
  BagsView bags;       // with weights
  GradientRows gradient;
  // The gradient of the weight of occurrence i goes to out[order[i]], or if `order` is null to out[i -
  // bags.first].
  const int32_t* order = nullptr;  // [occurrences of the group]
  int64_t given = 0;               // entries of `out`, at least as many as occurrences
  int64_t occurrences = 0;
  float* out = nullptr;
};

// Enqueues the gradients of the weights of some lookups on the stream, with the bits of WeightGradients
// (cc/cpu/pooling/segment_sum.h). Entries of `out` that belong to no occurrence become 0. `lookups` need not
// outlive the call. Thread-safe. Internal if a kernel cannot be launched.
Status EnqueueWeightGradients(cudaStream_t stream, Span<const LookupWeightGradient> lookups);

}  // namespace sok

#endif  // SOK_CUDA_POOLING_WEIGHT_GRADIENTS_H_
