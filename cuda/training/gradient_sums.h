#ifndef SOK_CUDA_TRAINING_GRADIENT_SUMS_H_
#define SOK_CUDA_TRAINING_GRADIENT_SUMS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/pooling/lookup_gradients.h"

namespace sok {

// The occurrences of a group's distinct ids, and the gradients that they add to rows. The arrays are on the
// device.
struct OccurrenceSegments {
  // Distinct id u occurs at positions[begin[u] .. begin[u + 1]), which increase (cuda/dedup/dedup.h).
  const int32_t* begin = nullptr;                 // [unique + 1]
  const int32_t* positions = nullptr;             // [occurrences]
  const OccurrenceGradient* gradients = nullptr;  // [occurrences], by position
};

// One table's part of these.
struct TableGradients {
  int64_t dim = 0;
  int64_t first_unique = 0;  // its distinct ids are [first_unique, first_unique + unique)
  int64_t unique = 0;
  int64_t first_occurrence = 0;  // begin[first_unique]
  int64_t occurrences = 0;
  // Whether dim is a multiple of 4 and all rows of gradients are aligned to 16 bytes.
  bool in_fours = false;
  float divisor = 1.0f;  // sums are divided by it
};

// What a kernel needs to sum a table's gradients. The gradient of distinct id number k of the table is the
// sum over its occurrences in order, in pieces of kSegmentPiece, divided.
struct SumsView {
  const int32_t* begin = nullptr;  // of the table's first distinct id
  const int32_t* positions = nullptr;
  const OccurrenceGradient* gradients = nullptr;
  const float* pieces = nullptr;  // [slots, dim]
  int64_t dim = 0;
  int64_t first_occurrence = 0;
  float divisor = 1.0f;
};

// The sums of the pieces of segments that are not short (segment_pieces.h), computed before the kernels that
// use SumsView.
class PieceSums {
 public:
  // Enqueues the kernel that writes the sums. The scratch lives as long as the result: kernels that use views
  // must be enqueued before the result is destroyed. ResourceExhausted if memory runs out; takes 8 * dim
  // bytes per kShortSegment occurrences; Internal if the kernel cannot be launched.
  static StatusOr<PieceSums> Enqueue(cudaStream_t stream, DeviceAllocator* scratch,
                                     const OccurrenceSegments& group, Span<const TableGradients> tables);

  // For kernels on the gradients of `tables[t]`.
  const SumsView& view(int64_t t) const { return views_[static_cast<size_t>(t)]; }

 private:
  DeviceBuffer<float> pieces_;
  std::vector<SumsView> views_;
};

// Sums of one table to write to memory: out[k, 0..dim), row-major, is the sum of the group's distinct id
// chosen[k], which must be one of the table's. If `chosen` is null, it is that of number first + k of the
// table's ids.
struct SumsOutput {
  int64_t table = 0;                // its position among the tables
  const int32_t* chosen = nullptr;  // [rows], on the device
  int64_t rows = 0;
  float* out = nullptr;
  int64_t first = 0;
};

// Enqueues sums of gradients on the stream, with the bits of SegmentSum (cc/cpu/pooling/segment_sum.h),
// divided by the table's divisor. A table may have several outputs. Arguments need not outlive the call;
// arrays on the device must stay valid until the kernels have run. Thread-safe. Errors are as for
// PieceSums::Enqueue.
Status EnqueueGradientSums(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                           Span<const TableGradients> tables, Span<const SumsOutput> outputs);

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_GRADIENT_SUMS_H_
