#ifndef SOK_CUDA_POOLING_OCCURRENCE_GRADIENTS_H_
#define SOK_CUDA_POOLING_OCCURRENCE_GRADIENTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/output_rows.h"
#include "cuda/base/device_allocator.h"
#include "cuda/pooling/lookup_view.h"

namespace sok {

// What reaches the row of an occurrence: scale * row[0..dim). One 16-byte access, as sums read these in the
// order of ids, each from another sector.
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

// Puts into the stream what says which gradient each occurrence has: its bag's, scaled with the bits of
// BagScales (cc/pooling/segment_sum.h). Scratch comes from `scratch` and is freed in the stream. `lookups`
// need not outlive the call. Thread-safe. ResourceExhausted where memory does not suffice, Internal where a
// kernel cannot be launched.
Status EnqueueOccurrenceGradients(cudaStream_t stream, DeviceAllocator* scratch,
                                  Span<const LookupGradient> lookups);

}  // namespace sok

#endif  // SOK_CUDA_POOLING_OCCURRENCE_GRADIENTS_H_
