// The stream and memory of a call into the engine.
#ifndef SOK_CUDA_GROUP_GPU_CALL_H_
#define SOK_CUDA_GROUP_GPU_CALL_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cc/engine/engine_context.h"
#include "cuda/base/device_buffer.h"

namespace sok {

// The memory of an EngineContext, or the engine's own if it has none. Thread-safe.
class CallMemory final : public DeviceAllocator {
 public:
  CallMemory(StreamMemory* memory, DeviceAllocator* own) : memory_(memory), own_(own) {}
  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override {
    if (memory_ == nullptr) return own_->Allocate(stream, bytes);
    return bytes == 0 ? StatusOr<void*>(static_cast<void*>(nullptr)) : memory_->Allocate(stream, bytes);
  }
  void Free(cudaStream_t stream, void* memory) override {
    if (memory_ == nullptr) return own_->Free(stream, memory);
    if (memory != nullptr) memory_->Free(stream, memory);
  }

 private:
  StreamMemory* memory_;
  DeviceAllocator* own_;
};

// The stream of a call, and its scratch, which is freed when the call ends.
class GpuCall {
 public:
  GpuCall(const EngineContext& context, DeviceAllocator* own)
      : stream_(static_cast<cudaStream_t>(context.stream)), memory_(context.memory, own) {}

  cudaStream_t stream() const { return stream_; }
  DeviceAllocator* scratch() { return &memory_; }

 private:
  cudaStream_t stream_;
  CallMemory memory_;
};

}  // namespace sok

#endif  // SOK_CUDA_GROUP_GPU_CALL_H_
