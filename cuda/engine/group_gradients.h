// What the gradients of a group's outputs mean for its distinct ids.
#ifndef SOK_CUDA_ENGINE_GROUP_GRADIENTS_H_
#define SOK_CUDA_ENGINE_GROUP_GRADIENTS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/output_rows.h"
#include "cuda/base/device_allocator.h"
#include "cuda/base/device_buffer.h"
#include "cuda/engine/gpu_group.h"
#include "cuda/training/gradient_sums.h"

namespace sok {

// The occurrences of distinct ids, and the gradient of each, in scratch that lives as long as this.
class PlanGradients {
 public:
  // Puts into the stream what makes them. gradients[l] belongs to lookup l. ResourceExhausted where `scratch`
  // has no memory.
  Status Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const GpuGroupPlan& plan,
                 Span<const GradientRows> gradients);

  OccurrenceSegments group() const { return {begin_.data(), positions_.data(), occurrences_.data()}; }
  // The part of table `t`: those of its ids that are trained.
  TableGradients table(int t) const;

 private:
  Status FindGradients(cudaStream_t stream, DeviceAllocator* scratch, Span<const GradientRows> gradients);

  const GpuGroupPlan* plan_ = nullptr;
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

#endif  // SOK_CUDA_ENGINE_GROUP_GRADIENTS_H_
