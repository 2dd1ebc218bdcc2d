#ifndef SOK_CUDA_POOLING_OCCURRENCE_GRADIENTS_H_
#define SOK_CUDA_POOLING_OCCURRENCE_GRADIENTS_H_

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

}  // namespace sok

#endif  // SOK_CUDA_POOLING_OCCURRENCE_GRADIENTS_H_
