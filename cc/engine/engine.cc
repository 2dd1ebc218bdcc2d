#include "cc/engine/engine.h"

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

}  // namespace sok
