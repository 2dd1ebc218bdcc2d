// Memory that the engine keeps from call to call: on the device, and on the host for inputs that come from
// it.
#ifndef SOK_CUDA_ENGINE_ENGINE_MEMORY_H_
#define SOK_CUDA_ENGINE_ENGINE_MEMORY_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/engine/engine_table.h"
#include "cuda/base/allocators.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/event.h"

namespace sok {

// EngineContext::kept_memory, which belongs to one stream, for work on any stream. Thread-safe.
class KeptMemory final : public DeviceAllocator {
 public:
  KeptMemory(StreamMemory* memory, cudaStream_t stream) : memory_(*memory), stream_(stream) {}

  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override;
  void Free(cudaStream_t stream, void* memory) override;

 private:
  StreamMemory& memory_;
  const cudaStream_t stream_;
};

// Pinned memory, a quarter more than the largest use so far needed.
class GpuHostStage final : public HostStage {
 public:
  using HostStage::HostStage;
  ~GpuHostStage() override;

  StatusOr<char*> Allocate(int64_t bytes) override;
  Status Send(const EngineContext& context, int64_t bytes, void* device) override;

 private:
  PinnedBuffer<char> memory_;
  Event copied_;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_ENGINE_MEMORY_H_
