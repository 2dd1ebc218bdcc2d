#ifndef SOK_CUDA_ENGINE_GPU_ENGINE_H_
#define SOK_CUDA_ENGINE_GPU_ENGINE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "cc/base/mutex.h"
#include "cc/engine/engine.h"
#include "cuda/base/allocators.h"
#include "cuda/engine/engine_memory.h"

namespace sok {

// The engine of NVIDIA GPUs. The stream of a context is a cudaStream_t; the caller has made its device
// current. The constructor does not call CUDA, so it also works without a driver; MakeTable then returns
// FailedPrecondition.
class GpuEngine final : public Engine {
 public:
  const std::string& name() const override;
  StatusOr<std::shared_ptr<EngineTable>> MakeTable(const EngineContext& context,
                                                   TableOptions options) override;
  std::unique_ptr<GroupPlan> NewPlan() override;
  std::unique_ptr<EngineScratch> NewScratch() override;
  std::unique_ptr<HostStage> NewHostStage() override;

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

  // Over ranks: words of messages, also those of an Inbox, are on the device. How often calls wait for the
  // device: Route once (and once more the first time that ids are out of order), Serve twice, Combine,
  // RoutedWeightGradients and Sum once, SumAndTrain once (and once more for each table that was replaced
  // since Serve), Reduce and Divide never. An error in a message costs one more wait.
  std::unique_ptr<RoutedGroup> NewRoutedGroup() override;
  std::unique_ptr<ServedGroup> NewServedGroup() override;
  Status Route(const EngineContext& context, const GroupBatch& batch, Span<const ExchangeMode> modes,
               const Status& status, RoutedGroup* routed, EngineScratch* scratch,
               AllocateWords allocate) override;
  Status Serve(const EngineContext& context, Span<EngineTable* const> tables, Span<const ExchangeMode> modes,
               const Inbox& requests, ServedGroup* served, EngineScratch* scratch,
               AllocateWords allocate) override;
  Status Combine(const EngineContext& context, Span<EngineTable* const> tables, const RoutedGroup& routed,
                 const Inbox& replies, Span<const OutputRows> outputs) override;
  Status Reduce(const EngineContext& context, const RoutedGroup& routed, Span<const GradientRows> gradients,
                const Inbox& replies, GradientFormat format, AllocateWords allocate) override;
  Status RoutedWeightGradients(const EngineContext& context, const RoutedGroup& routed, const Inbox& replies,
                               Span<const GradientRows> gradients, Span<float* const> weight_grads) override;
  Status Sum(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
             Span<float* const> grads_out, EngineScratch* scratch) override;
  Status SumAndTrain(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                     float divisor, std::string_view optimizer, Span<const EngineStep> steps,
                     EngineScratch* scratch) override;
  Status Divide(const EngineContext& context, const float* values, int64_t n, float divisor,
                float* quotients) override;

 private:
  // For what outlives a call in this context.
  DeviceAllocator* KeptMemoryOf(const EngineContext& context);

  AsyncAllocator memory_;
  PinnedAllocator host_memory_;  // of tables with RowMemory::kHost
  Mutex kept_mutex_;
  std::map<StreamMemory*, KeptMemory> kept_ SOK_GUARDED_BY(kept_mutex_);
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_GPU_ENGINE_H_
