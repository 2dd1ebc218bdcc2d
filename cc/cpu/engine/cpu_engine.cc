#include "cc/cpu/engine/cpu_engine.h"

#include <utility>

#include "cc/base/status.h"
#include "cc/engine/registry.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

[[maybe_unused]] const bool kRegistered = RegisterEngine(std::make_unique<CpuEngine>());

// Builds the bags of a batch: fills in the plan's lookups and training flag, and in `scratch` the tables and
// their ids.
Status TakeBatch(const EngineContext& context, const GroupBatch& batch, CpuGroupPlan* plan,
                 CpuScratch* scratch) {
  TablesOf(batch.tables, &scratch->tables);
  DimsOf(batch.tables, &plan->dims);
  plan->plan.training = batch.training;
  return BuildBags(context.executor, scratch->tables, batch.specs, batch.inputs, &plan->plan, &scratch->ids);
}

}  // namespace

const std::string& CpuEngine::name() const {
  static const std::string name = "cpu";
  return name;
}

StatusOr<std::shared_ptr<EngineTable>> CpuEngine::MakeTable(const EngineContext& context,
                                                            TableOptions options) {
  TableOptions named;
  named.name = options.name;
  std::shared_ptr<EngineTable> made;
  const Status status = WithinMemory([&] {
    StatusOr<std::unique_ptr<Table>> table = Table::Create(context.executor, std::move(options), this);
    if (table.ok()) made = std::move(table.value());
    return table.status();
  });
  if (!status.ok()) return NamedError(named, status);
  return made;
}

std::unique_ptr<GroupPlan> CpuEngine::NewPlan() { return std::make_unique<CpuGroupPlan>(this); }
std::unique_ptr<EngineScratch> CpuEngine::NewScratch() { return std::make_unique<CpuScratch>(this); }

Status CpuEngine::Lookup(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                         Span<const OutputRows> outputs, EngineScratch* scratch) {
  auto* const cpu_plan = static_cast<CpuGroupPlan*>(plan);
  auto* const cpu_scratch = static_cast<CpuScratch*>(scratch);
  return WithinMemory([&] {
    SOK_RETURN_IF_ERROR(TakeBatch(context, batch, cpu_plan, cpu_scratch));
    return GroupForward(context.executor, cpu_scratch->tables, cpu_scratch->ids.views, &cpu_plan->plan,
                        outputs, &cpu_scratch->group);
  });
}

Status CpuEngine::Merge(const EngineContext& context, const GroupBatch& batch, GroupPlan* plan,
                        EngineScratch* scratch) {
  auto* const cpu_plan = static_cast<CpuGroupPlan*>(plan);
  auto* const cpu_scratch = static_cast<CpuScratch*>(scratch);
  return WithinMemory([&] {
    SOK_RETURN_IF_ERROR(TakeBatch(context, batch, cpu_plan, cpu_scratch));
    return MergeGroup(context.executor, cpu_scratch->tables, cpu_scratch->ids.views, &cpu_plan->plan,
                      &cpu_scratch->group);
  });
}

Status CpuEngine::Read(const EngineContext& context, Span<EngineTable* const> tables, GroupPlan* plan,
                       Span<const OutputRows> outputs, EngineScratch* scratch) {
  auto* const cpu_scratch = static_cast<CpuScratch*>(scratch);
  return WithinMemory([&] {
    TablesOf(tables, &cpu_scratch->tables);
    return ReadGroup(context.executor, cpu_scratch->tables, &static_cast<CpuGroupPlan*>(plan)->plan, outputs,
                     &cpu_scratch->group);
  });
}

Status CpuEngine::Backward(const EngineContext& context, const GroupPlan& plan,
                           Span<const GradientRows> gradients, Span<float* const> grads_out,
                           EngineScratch* scratch) {
  const auto& cpu_plan = static_cast<const CpuGroupPlan&>(plan);
  return WithinMemory([&] {
    return GroupBackward(context.executor, cpu_plan.plan, cpu_plan.dims, gradients, grads_out,
                         &static_cast<CpuScratch*>(scratch)->gradients);
  });
}

Status CpuEngine::WeightGradients(const EngineContext& context, Span<EngineTable* const> tables,
                                  const GroupPlan& plan, Span<const GradientRows> gradients,
                                  Span<float* const> weight_grads) {
  const LookupPlan& lookup_plan = static_cast<const CpuGroupPlan&>(plan).plan;
  return WithinMemory([&] {
    for (int l = 0; l < static_cast<int>(weight_grads.size()); ++l) {
      if (weight_grads[l] == nullptr) continue;
      const LookupBags& lookup = lookup_plan.lookups[l];
      SOK_RETURN_IF_ERROR(WeightBackward(context.executor, TableOf(tables[lookup.table]), lookup_plan, l,
                                         gradients[l], {weight_grads[l], lookup.given}));
    }
    return OkStatus();
  });
}

Status CpuEngine::Train(const EngineContext& context, const GroupPlan& plan,
                        Span<const GradientRows> gradients, std::string_view optimizer,
                        Span<const EngineStep> steps, EngineScratch* scratch) {
  return WithinMemory([&] {
    return GroupTrain(context.executor, static_cast<const CpuGroupPlan&>(plan).plan, gradients, optimizer,
                      steps, &static_cast<CpuScratch*>(scratch)->gradients);
  });
}

}  // namespace sok
