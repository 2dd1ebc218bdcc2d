// The plans and working memory of the CPU engine's group calls.
#ifndef SOK_CC_ENGINE_CPU_GROUP_H_
#define SOK_CC_ENGINE_CPU_GROUP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/engine/cpu_table.h"
#include "cc/engine/engine.h"
#include "cc/group/group_lookup.h"
#include "cc/group/group_training.h"
#include "cc/group/lookup_bags.h"
#include "cc/group/lookup_plan.h"
#include "cc/group/part_gradients.h"
#include "cc/sharded/plans.h"

namespace sok {

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
  std::vector<TableStep> steps;
};

inline Table* TableOf(EngineTable* table) { return &static_cast<CpuTable*>(table)->table(); }

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

inline void StepsOf(Span<const EngineStep> engine_steps, std::vector<TableStep>* steps) {
  steps->clear();
  for (const EngineStep& step : engine_steps) {
    steps->push_back({step.position, TableOf(step.table), step.hyper});
  }
}

}  // namespace sok

#endif  // SOK_CC_ENGINE_CPU_GROUP_H_
