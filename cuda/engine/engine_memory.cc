#include "cuda/engine/engine_memory.h"

#include <cuda_runtime.h>

#include <utility>

#include "cuda/table/device_table.h"

namespace sok {
namespace {

// Orders later work on `next` after the work that is on `first` now.
Status OrderStreams(cudaStream_t first, cudaStream_t next) {
  StreamOrder order;
  order.Leave(first);
  return order.Enter(next);
}

}  // namespace

StatusOr<void*> KeptMemory::Allocate(cudaStream_t stream, int64_t bytes) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  StatusOr<void*> memory = memory_.Allocate(stream_, bytes);
  if (!memory.ok()) return memory.status();
  const Status ordered = OrderStreams(stream_, stream);
  if (ordered.ok()) return memory;
  memory_.Free(stream_, memory.value());
  return ordered;
}

void KeptMemory::Free(cudaStream_t stream, void* memory) {
  if (memory == nullptr) return;
  // This fails only if the device is lost; then nothing uses the memory any more.
  (void)OrderStreams(stream, stream_).ok();
  memory_.Free(stream_, memory);
}

GpuHostStage::~GpuHostStage() {
  // After an error of the device no copy runs any more.
  (void)copied_.Wait().ok();
}

StatusOr<char*> GpuHostStage::Allocate(int64_t bytes) {
  SOK_RETURN_IF_ERROR(copied_.Wait());
  if (memory_.size() < bytes) {
    memory_ = PinnedBuffer<char>();
    SOK_ASSIGN_OR_RETURN(memory_, PinnedBuffer<char>::Allocate(bytes + bytes / 4));
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
