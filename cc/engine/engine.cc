#include "cc/engine/engine.h"

#include <cstdint>
#include <vector>

namespace sok {
namespace {

constexpr char kOverRanks[] = "lookups over ranks";

Status Unimplemented(const Engine& engine, const char* call, const std::string& variable) {
  return sok::Unimplemented("Embedding variable '", variable, "': the engine '", engine.name(),
                            "' does not implement ", call);
}

}  // namespace

Status EngineTable::Erase(const EngineContext& /*context*/, Span<const int64_t> /*keys*/,
                          int64_t* /*erased*/) {
  return NotOffered("evicting keys");
}

Status EngineTable::SetGlobalStep(int64_t /*step*/) { return NotOffered("global steps"); }

StatusOr<std::unique_ptr<HeldTable>> EngineTable::Hold(const EngineContext& /*context*/) {
  return NotOffered("checkpoints, exports and raw files");
}

Status EngineTable::NotOffered(const char* call) const {
  return Unimplemented(engine(), call, options().name);
}

Status Engine::NotOffered(const char* call, Span<EngineTable* const> tables) const {
  if (!tables.empty()) return Unimplemented(*this, call, tables[0]->options().name);
  return sok::Unimplemented("The engine '", name(), "' does not implement ", call);
}

std::unique_ptr<RoutedGroup> Engine::NewRoutedGroup() { return nullptr; }
std::unique_ptr<ServedGroup> Engine::NewServedGroup() { return nullptr; }

Status Engine::Merge(const EngineContext& /*context*/, const GroupBatch& batch, GroupPlan* /*plan*/,
                     EngineScratch* /*scratch*/) {
  return NotOffered("lookups a step ahead", batch.tables);
}

Status Engine::Read(const EngineContext& /*context*/, Span<EngineTable* const> tables, GroupPlan* /*plan*/,
                    Span<const OutputRows> /*outputs*/, EngineScratch* /*scratch*/) {
  return NotOffered("lookups a step ahead", tables);
}

Status Engine::WeightGradients(const EngineContext& /*context*/, Span<EngineTable* const> tables,
                               const GroupPlan& /*plan*/, Span<const GradientRows> /*gradients*/,
                               Span<float* const> /*weight_grads*/) {
  return NotOffered("gradients of weights", tables);
}

Status Engine::Train(const EngineContext& /*context*/, const GroupPlan& /*plan*/,
                     Span<const GradientRows> /*gradients*/, std::string_view /*optimizer*/,
                     Span<const EngineStep> steps, EngineScratch* /*scratch*/) {
  if (steps.empty()) return NotOffered("fused updates");
  EngineTable* const tables[] = {steps[0].table};
  return NotOffered("fused updates", {tables, 1});
}

Status Engine::Route(const EngineContext& /*context*/, const GroupBatch& batch,
                     Span<const ExchangeMode> /*modes*/, const Status& /*status*/, RoutedGroup* /*routed*/,
                     EngineScratch* /*scratch*/, AllocateWords /*allocate*/) {
  return NotOffered(kOverRanks, batch.tables);
}

Status Engine::Serve(const EngineContext& /*context*/, Span<EngineTable* const> tables,
                     Span<const ExchangeMode> /*modes*/, const Inbox& /*requests*/, ServedGroup* /*served*/,
                     EngineScratch* /*scratch*/, AllocateWords /*allocate*/) {
  return NotOffered(kOverRanks, tables);
}

Status Engine::Combine(const EngineContext& /*context*/, Span<EngineTable* const> tables,
                       const RoutedGroup& /*routed*/, const Inbox& /*replies*/,
                       Span<const OutputRows> /*outputs*/) {
  return NotOffered(kOverRanks, tables);
}

Status Engine::Reduce(const EngineContext& /*context*/, const RoutedGroup& /*routed*/,
                      Span<const GradientRows> /*gradients*/, const Inbox& /*replies*/,
                      GradientFormat /*format*/, AllocateWords /*allocate*/) {
  return NotOffered(kOverRanks);
}

Status Engine::RoutedWeightGradients(const EngineContext& /*context*/, const RoutedGroup& /*routed*/,
                                     const Inbox& /*replies*/, Span<const GradientRows> /*gradients*/,
                                     Span<float* const> /*weight_grads*/) {
  return NotOffered(kOverRanks);
}

Status Engine::Sum(const EngineContext& /*context*/, const ServedGroup& /*served*/, const Inbox& /*messages*/,
                   Span<float* const> /*grads_out*/, EngineScratch* /*scratch*/) {
  return NotOffered(kOverRanks);
}

Status Engine::SumAndTrain(const EngineContext& /*context*/, const ServedGroup& /*served*/,
                           const Inbox& /*messages*/, float /*divisor*/, std::string_view /*optimizer*/,
                           Span<const EngineStep> /*steps*/, EngineScratch* /*scratch*/) {
  return NotOffered(kOverRanks);
}

Status Engine::Divide(const EngineContext& /*context*/, const float* /*values*/, int64_t /*n*/,
                      float /*divisor*/, float* /*quotients*/) {
  return NotOffered("divisions of gradients");
}

namespace {

bool CanBeSummed(const LookupSpec& spec) { return spec.pooled() && !spec.weighted && spec.keeps_bags; }

template <typename... Parts>
Status NotSummed(const EngineTable& table, const Parts&... found) {
  return InvalidArgument("Lookup in embedding variable '", table.options().name,
                         "' over ranks: ranks send sums for a table with exactly one lookup in the group, ",
                         "pooled and without weights, but this group has ", found...);
}

}  // namespace

Status CheckSummedTables(const GroupBatch& batch, Span<const ExchangeMode> modes) {
  struct Lookups {
    int64_t all = 0;
    int64_t summed = 0;
  };
  std::vector<Lookups> lookups(static_cast<size_t>(modes.size()));
  for (const LookupSpec& spec : batch.specs) {
    ++lookups[spec.table].all;
    lookups[spec.table].summed += CanBeSummed(spec) ? 1 : 0;
  }
  for (int64_t t = 0; t < modes.size(); ++t) {
    const auto [all, summed] = lookups[t];
    if (modes[t] == ExchangeMode::kRows || (all == 1 && summed == 1)) continue;
    if (all != 1) return NotSummed(*batch.tables[t], all, " lookups in it");
    return NotSummed(*batch.tables[t], "one of another kind");
  }
  return OkStatus();
}

}  // namespace sok
