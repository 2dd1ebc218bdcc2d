#include <utility>
#include <vector>

#include "cc/base/within_memory.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/engine/gpu_engine.h"
#include "cuda/engine/gpu_group.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/engine/group_lookup.h"
#include "cuda/engine/group_training.h"

namespace sok {
namespace {

std::vector<DeviceTable*> DeviceTablesOf(Span<EngineTable* const> tables) {
  std::vector<DeviceTable*> device_tables;
  for (EngineTable* table : tables) device_tables.push_back(DeviceTableOf(table));
  return device_tables;
}

}  // namespace

const std::string& GpuEngine::name() const {
  static const std::string name = "gpu";
  return name;
}

StatusOr<std::shared_ptr<EngineTable>> GpuEngine::MakeTable(const EngineContext& context,
                                                            TableOptions options) {
  StatusOr<std::unique_ptr<DeviceTable>> made = DeviceTable::Create(static_cast<cudaStream_t>(context.stream),
                                                                    {&memory_, &memory_}, std::move(options));
  SOK_RETURN_IF_ERROR(made.status());
  return std::shared_ptr<EngineTable>(std::make_shared<GpuTable>(this, &memory_, std::move(made.value())));
}

std::unique_ptr<GroupPlan> GpuEngine::NewPlan() { return std::make_unique<GpuGroupPlan>(this); }
std::unique_ptr<EngineScratch> GpuEngine::NewScratch() { return std::make_unique<GpuScratch>(this); }

Status GpuEngine::Lookup(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                         Span<const OutputRows> outputs, EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_);
    return GroupLookup(&call, &memory_, DeviceTablesOf(batch.tables), static_cast<GpuGroupPlan*>(plan),
                       static_cast<GpuScratch*>(scratch))
        .Lookup(batch, outputs);
  });
}

Status GpuEngine::Merge(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                        EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_);
    return GroupLookup(&call, &memory_, DeviceTablesOf(batch.tables), static_cast<GpuGroupPlan*>(plan),
                       static_cast<GpuScratch*>(scratch))
        .Merge(batch);
  });
}

Status GpuEngine::Read(const EngineContext& context, Span<EngineTable* const> tables, GroupPlan* plan,
                       Span<const OutputRows> outputs, EngineScratch* scratch) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_);
    return GroupLookup(&call, &memory_, DeviceTablesOf(tables), static_cast<GpuGroupPlan*>(plan),
                       static_cast<GpuScratch*>(scratch))
        .Read(outputs);
  });
}

Status GpuEngine::Backward(const EngineContext& context, const GroupPlan& plan,
                           Span<const GradientRows> gradients, Span<float* const> grads_out,
                           EngineScratch* /*scratch*/) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_);
    return GroupBackward(&call, static_cast<const GpuGroupPlan&>(plan), gradients, grads_out);
  });
}

Status GpuEngine::WeightGradients(const EngineContext& context, Span<EngineTable* const> tables,
                                  const GroupPlan& plan, Span<const GradientRows> gradients,
                                  Span<float* const> weight_grads) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_);
    return GroupWeightGradients(&call, DeviceTablesOf(tables), static_cast<const GpuGroupPlan&>(plan),
                                gradients, weight_grads);
  });
}

Status GpuEngine::Train(const EngineContext& context, const GroupPlan& plan,
                        Span<const GradientRows> gradients, std::string_view optimizer,
                        Span<const EngineStep> steps, EngineScratch* /*scratch*/) {
  return WithinMemory([&] {
    GpuCall call(context, &memory_);
    std::vector<DeviceTableStep> device_steps;
    for (const EngineStep& step : steps) {
      device_steps.push_back({step.position, DeviceTableOf(step.table), step.hyper});
    }
    return GroupTrain(&call, static_cast<const GpuGroupPlan&>(plan), gradients, optimizer, device_steps);
  });
}

}  // namespace sok
