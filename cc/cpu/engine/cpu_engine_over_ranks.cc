#include <algorithm>

#include "cc/base/status.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/engine/cpu_engine.h"
#include "cc/cpu/pooling/vector_math.h"
#include "cc/cpu/sharded/sharded_group.h"
#include "cc/engine/engine.h"
#include "cc/messages/message.h"

namespace sok {
namespace {

// Everything that Route does except for the messages. After an error `plan` has no lookups.
Status RouteBatch(const EngineContext& context, const GroupBatch& batch, CpuScratch* scratch,
                  RoutePlan* plan) {
  const Status status = WithinMemory([&] {
    SOK_RETURN_IF_ERROR(CheckSummedTables(batch, plan->modes));
    SOK_RETURN_IF_ERROR(
        BuildBags(context.executor, scratch->tables, batch.specs, batch.inputs, &plan->group, &scratch->ids));
    return RouteGroup(context.executor, scratch->tables, scratch->ids.views, plan, &scratch->group);
  });
  if (!status.ok()) {
    plan->group.lookups.clear();
    plan->routes.clear();
  }
  return status;
}

Status CheckLookups(const RoutePlan& plan, int64_t lookups) {
  return CheckRouted(static_cast<int64_t>(plan.group.lookups.size()), lookups);
}
Status CheckServed(const CpuServedGroup& served) {
  if (served.plan.parts.size() == served.dims.size()) return OkStatus();
  return LookupHadAnError();
}

}  // namespace

std::unique_ptr<RoutedGroup> CpuEngine::NewRoutedGroup() { return std::make_unique<CpuRoutedGroup>(this); }
std::unique_ptr<ServedGroup> CpuEngine::NewServedGroup() { return std::make_unique<CpuServedGroup>(this); }

Status CpuEngine::Route(const EngineContext& context, const GroupBatch& batch, Span<const ExchangeMode> modes,
                        const Status& status, RoutedGroup* routed, EngineScratch* scratch,
                        AllocateWords allocate) {
  RoutePlan& plan = static_cast<CpuRoutedGroup*>(routed)->plan;
  auto* const cpu_scratch = static_cast<CpuScratch*>(scratch);
  return WithinMemory([&] {
    TablesOf(batch.tables, &cpu_scratch->tables);
    plan.rank = batch.tables[0]->options().rank;
    plan.ranks = batch.tables[0]->options().ranks;
    plan.modes.assign(modes.begin(), modes.end());
    plan.group.training = batch.training;
    const Status outcome = status.ok() ? RouteBatch(context, batch, cpu_scratch, &plan) : status;
    return WriteRequests(cpu_scratch->tables, outcome, plan, allocate);
  });
}

Status CpuEngine::Serve(const EngineContext& context, Span<EngineTable* const> tables,
                        Span<const ExchangeMode> modes, const Inbox& requests, ServedGroup* served,
                        EngineScratch* scratch, AllocateWords allocate) {
  auto* const cpu_served = static_cast<CpuServedGroup*>(served);
  auto* const cpu_scratch = static_cast<CpuScratch*>(scratch);
  return WithinMemory([&] {
    TablesOf(tables, &cpu_scratch->tables);
    DimsOf(tables, &cpu_served->dims);
    return ServeGroup(context.executor, cpu_scratch->tables, modes, tables[0]->options().rank, requests,
                      &cpu_served->plan, &cpu_scratch->group, allocate);
  });
}

Status CpuEngine::Combine(const EngineContext& context, Span<EngineTable* const> tables,
                          const RoutedGroup& routed, const Inbox& replies, Span<const OutputRows> outputs) {
  const RoutePlan& plan = static_cast<const CpuRoutedGroup&>(routed).plan;
  return WithinMemory([&] {
    ReceivedRows received;
    SOK_RETURN_IF_ERROR(ReadReplies(TablesOf(tables), plan, replies, &received));
    SOK_RETURN_IF_ERROR(CheckLookups(plan, outputs.size()));
    return CombineGroup(context.executor, plan, received, outputs);
  });
}

Status CpuEngine::Reduce(const EngineContext& context, const RoutedGroup& routed,
                         Span<const GradientRows> gradients, const Inbox& replies, GradientFormat format,
                         AllocateWords allocate) {
  const RoutePlan& plan = static_cast<const CpuRoutedGroup&>(routed).plan;
  return WithinMemory([&] {
    SOK_RETURN_IF_ERROR(CheckLookups(plan, gradients.size()));
    return ReduceGroup(context.executor, plan, gradients, replies, format, allocate);
  });
}

Status CpuEngine::RoutedWeightGradients(const EngineContext& context, const RoutedGroup& routed,
                                        const Inbox& replies, Span<const GradientRows> gradients,
                                        Span<float* const> weight_grads) {
  const RoutePlan& plan = static_cast<const CpuRoutedGroup&>(routed).plan;
  return WithinMemory([&] {
    SOK_RETURN_IF_ERROR(CheckLookups(plan, gradients.size()));
    ReceivedRows rows;
    SOK_RETURN_IF_ERROR(ReadReplies({}, plan, replies, &rows));
    for (int l = 0; l < static_cast<int>(weight_grads.size()); ++l) {
      if (weight_grads[l] == nullptr) continue;
      const LookupBags& lookup = plan.group.lookups[l];
      LookupWeightGradients(context.executor, plan.group, l, rows[lookup.table].rows(),
                            plan.dims[lookup.table], gradients[l], {weight_grads[l], lookup.given});
    }
    return OkStatus();
  });
}

Status CpuEngine::Sum(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                      Span<float* const> grads_out, EngineScratch* scratch) {
  const auto& cpu_served = static_cast<const CpuServedGroup&>(served);
  return WithinMemory([&] {
    SOK_RETURN_IF_ERROR(CheckServed(cpu_served));
    ArrivedGradients arrived;
    SOK_RETURN_IF_ERROR(ReadGradients(cpu_served.plan, cpu_served.dims, messages, &arrived));
    return SumGradients(context.executor, cpu_served.plan, arrived, cpu_served.dims, grads_out,
                        &static_cast<CpuScratch*>(scratch)->gradients);
  });
}

Status CpuEngine::SumAndTrain(const EngineContext& context, const ServedGroup& served, const Inbox& messages,
                              float divisor, std::string_view optimizer, Span<const EngineStep> steps,
                              EngineScratch* scratch) {
  const auto& cpu_served = static_cast<const CpuServedGroup&>(served);
  return WithinMemory([&] {
    SOK_RETURN_IF_ERROR(CheckServed(cpu_served));
    ArrivedGradients arrived;
    SOK_RETURN_IF_ERROR(ReadGradients(cpu_served.plan, cpu_served.dims, messages, &arrived));
    return sok::SumAndTrain(context.executor, cpu_served.plan, arrived, divisor, optimizer, steps,
                            &static_cast<CpuScratch*>(scratch)->gradients);
  });
}

Status CpuEngine::Divide(const EngineContext& context, const float* values, int64_t n, float divisor,
                         float* quotients) {
  context.executor.ParallelFor(n, /*ns_per_item=*/1, [&](int64_t begin, int64_t end) {
    if (quotients != values) std::copy(values + begin, values + end, quotients + begin);
    RunVectorized([&] { sok::Divide(divisor, end - begin, quotients + begin); });
  });
  return OkStatus();
}

}  // namespace sok
