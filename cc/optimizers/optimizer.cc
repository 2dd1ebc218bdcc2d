#include "cc/optimizers/optimizer.h"

#include "cc/optimizers/optimizer_state.h"

namespace sok {

Status Optimizer::CheckHyper(Span<const float> hyper) const {
  const std::vector<std::string> names = hyper_parameters();
  if (hyper.size() != static_cast<int64_t>(names.size())) {
    std::string list;
    for (const std::string& hyper_name : names) list += (list.empty() ? "" : ", ") + hyper_name;
    return InvalidArgument("Optimizer '", name_, "' takes ", names.size(), " hyper-parameters (", list,
                           "), got ", hyper.size());
  }
  return CheckValues(hyper);
}

Status Optimizer::Reserve(int64_t /*rows*/) { return OkStatus(); }

void Optimizer::OnNewRow(int64_t /*row*/) {}

void Optimizer::CatchUp(Executor& /*executor*/, Span<const int64_t> /*rows*/, RowStore* /*store*/) {}

Status Optimizer::RestorePastSteps(const PastSteps& /*past*/) {
  return InvalidArgument("Optimizer '", name_, "' has no rows that have missed steps");
}

std::string Optimizer::SerializeState() const { return EncodeOptimizerState(OptimizerState{name_, steps_}); }

Status Optimizer::RestoreState(std::string_view state) {
  StatusOr<OptimizerState> decoded = DecodeOptimizerState(state);
  if (!decoded.ok()) return decoded.status();
  if (decoded.value().name != name_) {
    return InvalidArgument("The state is that of optimizer '", decoded.value().name, "', not of '", name_,
                           "'");
  }
  steps_ = decoded.value().steps;
  ForgetHistory();
  return OkStatus();
}

}  // namespace sok
