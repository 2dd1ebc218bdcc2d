#include "cc/optimizers/optimizer.h"

#include "cc/optimizers/optimizer_state.h"

namespace sok {

std::vector<std::string> Optimizer::hyper_parameters() const {
  std::vector<std::string> names;
  for (const HyperParameter& hyper : rule_.hyper) names.push_back(hyper.name);
  return names;
}

std::vector<SlotSpec> Optimizer::Slots(int64_t dim, Span<const float> hyper) const {
  std::vector<SlotSpec> specs;
  for (const RuleSlot& slot : rule_.slots) {
    specs.push_back(SlotSpec{slot.one_per_row ? 1 : dim, rule_.SlotFill(slot, hyper)});
  }
  return specs;
}

std::vector<std::string> Optimizer::slot_names() const {
  std::vector<std::string> names;
  for (const RuleSlot& slot : rule_.slots) names.push_back(slot.name);
  return names;
}

Status Optimizer::Reserve(int64_t /*rows*/) { return OkStatus(); }

void Optimizer::OnNewRow(int64_t /*row*/) {}

void Optimizer::CatchUp(Executor& /*executor*/, Span<const int64_t> /*rows*/, RowStore* /*store*/) {}

Status Optimizer::RestorePastSteps(const PastSteps& /*past*/) {
  return InvalidArgument("Optimizer '", name(), "' keeps no history of steps that rows have missed");
}

std::string Optimizer::SerializeState() const { return EncodeOptimizerState(OptimizerState{name(), steps_}); }

Status Optimizer::RestoreState(std::string_view state) {
  StatusOr<OptimizerState> decoded = DecodeOptimizerState(state);
  if (!decoded.ok()) return decoded.status();
  if (decoded.value().name != name()) {
    return InvalidArgument("The state is that of optimizer '", decoded.value().name, "', not of '", name(),
                           "'");
  }
  steps_ = decoded.value().steps;
  ForgetHistory();
  return OkStatus();
}

}  // namespace sok
