#ifndef SOK_CUDA_ENGINE_KEPT_MEMORY_H_
#define SOK_CUDA_ENGINE_KEPT_MEMORY_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cc/engine/engine_context.h"
#include "cuda/base/device_buffer.h"

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

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_KEPT_MEMORY_H_
