// The engine for the host's memory and processors. It implements the Engine interface with cc/cpu/table,
// cc/cpu/group and cc/cpu/sharded.
#ifndef SOK_CC_CPU_ENGINE_CPU_ENGINE_H_
#define SOK_CC_CPU_ENGINE_CPU_ENGINE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/group/group_training.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/sharded/sharded_group.h"
#include "cc/cpu/table/table.h"
#include "cc/engine/engine.h"

namespace sok {

// The plans and working memory of the CPU engine's group calls.

inline void WriteReferencesOf(const TablePart& part, int64_t* references) {
  std::copy_n(part.rows.begin(), part.trained, references);
}

class CpuGroupPlan final : public GroupPlan {
 public:
  using GroupPlan::GroupPlan;
  int64_t trained_rows(int t) const override { return plan.parts[t].trained; }
  Status WriteReferences(const EngineContext& /*context*/, int t, int64_t* references) const override {
    WriteReferencesOf(plan.parts[t], references);
    return OkStatus();
  }

  LookupPlan plan;
  std::vector<int64_t> dims;  // of the group's tables
};

class CpuRoutedGroup final : public RoutedGroup {
 public:
  using RoutedGroup::RoutedGroup;

  RoutePlan plan;
};

class CpuServedGroup final : public ServedGroup {
 public:
  using ServedGroup::ServedGroup;
  // After an error no table has a part, and none is trained.
  int64_t trained_rows(int t) const override { return plan.parts.empty() ? 0 : plan.parts[t].merged.trained; }
  Status WriteReferences(const EngineContext& /*context*/, int t, int64_t* references) const override {
    if (!plan.parts.empty()) WriteReferencesOf(plan.parts[t].merged, references);
    return OkStatus();
  }

  ServedPlan plan;
  std::vector<int64_t> dims;  // of the group's tables
};

class CpuScratch final : public EngineScratch {
 public:
  using EngineScratch::EngineScratch;

  std::vector<Table*> tables;
  GroupIds ids;
  GroupScratch group;
  GradientScratch gradients;
};

inline Table* TableOf(EngineTable* table) { return static_cast<Table*>(table); }

// Sets *tables to the Tables of `engine_tables`.
inline void TablesOf(Span<EngineTable* const> engine_tables, std::vector<Table*>* tables) {
  tables->clear();
  for (EngineTable* table : engine_tables) tables->push_back(TableOf(table));
}
inline std::vector<Table*> TablesOf(Span<EngineTable* const> engine_tables) {
  std::vector<Table*> tables;
  TablesOf(engine_tables, &tables);
  return tables;
}

inline void DimsOf(Span<EngineTable* const> tables, std::vector<int64_t>* dims) {
  dims->clear();
  for (const EngineTable* table : tables) dims->push_back(table->options().dim);
}

// Registered as "cpu". Its tables are those of cc/cpu/table.
class CpuEngine final : public Engine {
 public:
  const std::string& name() const override;
  StatusOr<std::shared_ptr<EngineTable>> MakeTable(const EngineContext& context,
                                                   TableOptions options) override;
  std::unique_ptr<GroupPlan> NewPlan() override;
  std::unique_ptr<EngineScratch> NewScratch() override;
  std::unique_ptr<RoutedGroup> NewRoutedGroup() override;
  std::unique_ptr<ServedGroup> NewServedGroup() override;

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
};

}  // namespace sok

#endif  // SOK_CC_CPU_ENGINE_CPU_ENGINE_H_
