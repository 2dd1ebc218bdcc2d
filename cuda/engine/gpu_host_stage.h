#ifndef SOK_CUDA_ENGINE_GPU_HOST_STAGE_H_
#define SOK_CUDA_ENGINE_GPU_HOST_STAGE_H_

#include <cstdint>

#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/base/event.h"
#include "cuda/base/pinned.h"

namespace sok {

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

#endif  // SOK_CUDA_ENGINE_GPU_HOST_STAGE_H_
