#include "cc/optimizers/rule_info.h"

#include <cmath>
#include <string_view>

namespace sok {
namespace {

bool InRange(HyperRange range, float value) {
  switch (range) {
    case HyperRange::kFinite:
      return true;
    case HyperRange::kNonNegative:
      return value >= 0.0f;
    case HyperRange::kPositive:
      return value > 0.0f;
    case HyperRange::kNonPositive:
      return value <= 0.0f;
    case HyperRange::kUnit:
      return value >= 0.0f && value <= 1.0f;
    case HyperRange::kBelowOne:
      return value >= 0.0f && value < 1.0f;
  }
  return false;
}

}  // namespace

const char* Describe(HyperRange range) {
  switch (range) {
    case HyperRange::kFinite:
      return "finite";
    case HyperRange::kNonNegative:
      return "finite and at least 0";
    case HyperRange::kPositive:
      return "finite and above 0";
    case HyperRange::kNonPositive:
      return "finite and at most 0";
    case HyperRange::kUnit:
      return "between 0 and 1";
    case HyperRange::kBelowOne:
      return "at least 0 and below 1";
  }
  return "";
}

Status RuleInfo::CheckHyper(Span<const float> values) const {
  if (values.size() != static_cast<int64_t>(hyper.size())) {
    std::string names;
    for (const HyperParameter& one : hyper) names += (names.empty() ? "" : ", ") + std::string(one.name);
    return InvalidArgument("Optimizer '", name, "' takes ", hyper.size(), " hyper-parameters (", names,
                           "), got ", values.size());
  }
  for (size_t i = 0; i < hyper.size(); ++i) {
    const float value = values[static_cast<int64_t>(i)];
    if (std::isfinite(value) && InRange(hyper[i].range, value)) continue;
    return InvalidArgument("Optimizer '", name, "': ", hyper[i].name, " must be ", Describe(hyper[i].range),
                           ", got ", value);
  }
  return OkStatus();
}

float RuleInfo::SlotFill(const RuleSlot& slot, Span<const float> values) const {
  if (slot.fill == nullptr) return 0.0f;
  const std::string_view fill = slot.fill;
  for (size_t i = 0; i < hyper.size(); ++i) {
    if (fill == hyper[i].name) return values[static_cast<int64_t>(i)];
  }
  return 0.0f;
}

}  // namespace sok
