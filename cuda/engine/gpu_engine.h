#ifndef SOK_CUDA_ENGINE_GPU_ENGINE_H_
#define SOK_CUDA_ENGINE_GPU_ENGINE_H_

#include <memory>
#include <string>
#include <string_view>

#include "cc/engine/engine.h"
#include "cuda/base/async_allocator.h"

namespace sok {

// The engine of NVIDIA GPUs. The stream of a context is a cudaStream_t; the caller has made its device
// current. Making this object calls nothing of CUDA: it can be done without a driver.
class GpuEngine final : public Engine {
 public:
  const std::string& name() const override;
  StatusOr<std::shared_ptr<EngineTable>> MakeTable(const EngineContext& context,
                                                   TableOptions options) override;
  std::unique_ptr<GroupPlan> NewPlan() override;
  std::unique_ptr<EngineScratch> NewScratch() override;

  Status Lookup(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                Span<const OutputRows> outputs, EngineScratch* scratch) override;
  Status Merge(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
               EngineScratch* scratch) override;
  Status Read(const EngineContext& context, Span<EngineTable* const> tables, GroupPlan* plan,
              Span<const OutputRows> outputs, EngineScratch* scratch) override;
  Status Backward(const EngineContext& context, const GroupPlan& plan, Span<const GradientRows> gradients,
                  Span<float* const> grads_out, EngineScratch* scratch) override;
  Status WeightGradients(const EngineContext& context, Span<EngineTable* const> tables, const GroupPlan& plan,
                         Span<const GradientRows> gradients, Span<float* const> weight_grads) override;
  Status Train(const EngineContext& context, const GroupPlan& plan, Span<const GradientRows> gradients,
               std::string_view optimizer, Span<const EngineStep> steps, EngineScratch* scratch) override;

 private:
  AsyncAllocator memory_;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_GPU_ENGINE_H_
