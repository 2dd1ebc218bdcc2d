// Gradients of a lookup's occurrences and weights, from the gradient of its output.
#ifndef SOK_CUDA_POOLING_LOOKUP_GRADIENTS_H_
#define SOK_CUDA_POOLING_LOOKUP_GRADIENTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cuda/base/device_buffer.h"
#include "cuda/pooling/lookup_view.h"

namespace sok {

// The gradient that an occurrence adds to its row: scale * row[0..dim). Read by one 16-byte access: sums read
// these in the order of ids, each from a different sector.
struct alignas(16) OccurrenceGradient {
  const float* row = nullptr;
  float scale = 0.0f;
};

// A lookup and the gradient of its output.
struct LookupGradient {
  BagsView bags;
  int64_t occurrences = 0;
  // [occurrences of the group]: the bag of each. Null: kernels search for it.
  const int32_t* bag_of = nullptr;
  GradientRows gradient;
  OccurrenceGradient* out = nullptr;  // [occurrences of the group]
};

// Enqueues the work that finds each occurrence's gradient: its bag's, scaled with the bits of BagScales
// (cc/cpu/pooling/segment_sum.h). Scratch comes from `scratch` and is freed in the stream. `lookups` need not
// outlive the call. Thread-safe. ResourceExhausted if memory runs out, Internal if a kernel cannot be
// launched.
Status EnqueueOccurrenceGradients(cudaStream_t stream, DeviceAllocator* scratch,
                                  Span<const LookupGradient> lookups);

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

#endif  // SOK_CUDA_POOLING_LOOKUP_GRADIENTS_H_
