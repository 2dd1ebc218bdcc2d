// From the gradients of a group's outputs to those of its distinct ids.
#ifndef SOK_CUDA_GROUP_GROUP_GRADIENTS_H_
#define SOK_CUDA_GROUP_GROUP_GRADIENTS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/group_merge.h"
#include "cuda/pooling/lookup_gradients.h"
#include "cuda/training/gradient_sums.h"

namespace sok {

// Gradients of some occurrences of table `table` of a group: `out` is filled in by MergedGradients.
struct GradientOfTable {
  int table = 0;
  LookupGradient gradient;
};

// The gradients of a group's lookups: gradients[l] belongs to lookup l.
std::vector<GradientOfTable> GradientsOfLookups(const MergedBags& group, Span<const GradientRows> gradients);

// The occurrences of distinct ids, and the gradient of each, in scratch that lives as long as this object.
class MergedGradients {
 public:
  // Enqueues their computation on the stream. Sums of gradients are divided by `divisor`. ResourceExhausted
  // if `scratch` runs out of memory.
  Status Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const MergedGroup& group,
                 const std::vector<GradientOfTable>& gradients, float divisor = 1.0f);

  OccurrenceSegments group() const { return {begin_.data(), positions_.data(), occurrences_.data()}; }
  // The part of table `t`: its first `ids` distinct ids.
  TableGradients table(int t, int64_t ids) const;

 private:
  const MergedGroup* group_ = nullptr;
  float divisor_ = 1.0f;
  DeviceBuffer<int32_t> begin_;
  DeviceBuffer<int32_t> positions_;
  DeviceBuffer<OccurrenceGradient> occurrences_;
  std::vector<uint8_t> in_fours_;  // by table
};

// The gradients of rows that may repeat: gradient i is grads[i, 0..dim).
class RepeatedGradients {
 public:
  // inverse[n] are the numbers of the rows in [0, unique).
  Status Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const int32_t* inverse, int64_t n,
                 int64_t unique, const float* grads, int64_t dim);

  OccurrenceSegments group() const { return {begin_.data(), positions_.data(), occurrences_.data()}; }
  TableGradients table() const { return table_; }

 private:
  DeviceBuffer<int32_t> begin_;
  DeviceBuffer<int32_t> positions_;
  DeviceBuffer<OccurrenceGradient> occurrences_;
  TableGradients table_;
};

}  // namespace sok

#endif  // SOK_CUDA_GROUP_GROUP_GRADIENTS_H_
