#ifndef SOK_CUDA_TRAINING_GRADIENT_SUMS_H_
#define SOK_CUDA_TRAINING_GRADIENT_SUMS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/base/device_buffer.h"
#include "cuda/pooling/occurrence_gradients.h"

namespace sok {

// The occurrences of a group's distinct ids, and what reaches their rows. Arrays on the device.
struct OccurrenceSegments {
  // Distinct id u occurs at positions[begin[u] .. begin[u + 1]), which increase (cuda/dedup/segments.h).
  const int32_t* begin = nullptr;                 // [unique + 1]
  const int32_t* positions = nullptr;             // [occurrences]
  const OccurrenceGradient* gradients = nullptr;  // [occurrences], by position
};

// The part of a table in them.
struct TableGradients {
  int64_t dim = 0;
  int64_t first_unique = 0;  // its distinct ids are [first_unique, first_unique + unique)
  int64_t unique = 0;
  int64_t first_occurrence = 0;  // begin[first_unique]
  int64_t occurrences = 0;
  // Whether dim is a multiple of 4 and all gradients' rows are aligned to 16 bytes.
  bool in_fours = false;
  float divisor = 1.0f;  // sums are divided by it
};

// What a kernel needs to sum up a table's gradients. The gradient of distinct id number k of the table is the
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

// The sums of pieces of long segments, made before the kernels that use SumsView.
class PieceSums {
 public:
  // Puts the kernel into the stream that writes them. The scratch lives as long as the result: kernels that
  // use views have to be in the stream before that. ResourceExhausted where memory does not suffice, 8 * dim
  // bytes for each kSegmentPiece occurrences; Internal where the kernel cannot be launched.
  static StatusOr<PieceSums> Enqueue(cudaStream_t stream, DeviceAllocator* scratch,
                                     const OccurrenceSegments& group, Span<const TableGradients> tables);

  // For kernels on the gradients of `tables[t]`.
  const SumsView& view(int64_t t) const { return views_[static_cast<size_t>(t)]; }

 private:
  DeviceBuffer<float> pieces_;
  std::vector<SumsView> views_;
};

// Sums of one table that are wanted in memory: out[k, 0..dim), row-major, that of distinct id chosen[k] of
// the group, which is one of the table's; null `chosen` means number first + k of the table's ids.
struct SumsOutput {
  int64_t table = 0;                // its position among the tables
  const int32_t* chosen = nullptr;  // [rows], on the device
  int64_t rows = 0;
  float* out = nullptr;
  int64_t first = 0;
};

// Puts sums of gradients into the stream: the bits of SegmentSum (cc/pooling/segment_sum.h), and of the
// division by a table's divisor. A table may have several outputs. Arguments need not outlive the call,
// arrays on the device have to be there when the stream gets to them. Thread-safe. Errors as
// PieceSums::Enqueue.
Status EnqueueGradientSums(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                           Span<const TableGradients> tables, Span<const SumsOutput> outputs);

}  // namespace sok

#endif  // SOK_CUDA_TRAINING_GRADIENT_SUMS_H_
