#include "cuda/engine/gpu_host_stage.h"

#include <cuda_runtime.h>

#include <utility>

namespace sok {

GpuHostStage::~GpuHostStage() {
  // After an error of the device no copy runs any more.
  (void)copied_.Wait().ok();
}

StatusOr<char*> GpuHostStage::Allocate(int64_t bytes) {
  SOK_RETURN_IF_ERROR(copied_.Wait());
  if (memory_.size() < bytes) {
    memory_ = PinnedBuffer<char>();
    StatusOr<PinnedBuffer<char>> memory = PinnedBuffer<char>::Allocate(bytes + bytes / 4);
    SOK_RETURN_IF_ERROR(memory.status());
    memory_ = std::move(memory.value());
  }
  return memory_.data();
}

Status GpuHostStage::Send(const EngineContext& context, int64_t bytes, void* device) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(device, memory_.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
      "cannot copy ", bytes, " bytes to the device");
  return copied_.Record(stream);
}

}  // namespace sok
