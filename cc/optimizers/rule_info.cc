#include "cc/optimizers/rule_info.h"

#include <cmath>
#include <string_view>

#include "cc/optimizers/rules.h"

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

// The initial value of a slot.
float SlotFill(const RuleInfo& rule, const RuleSlot& slot, Span<const float> values) {
  if (slot.fill == nullptr) return 0.0f;
  const std::string_view fill = slot.fill;
  for (size_t i = 0; i < rule.hyper.size(); ++i) {
    if (fill == rule.hyper[i].name) return values[static_cast<int64_t>(i)];
  }
  return 0.0f;
}

template <typename... Rules>
std::vector<const RuleInfo*> InfosOf(RuleList<Rules...>) {
  return {&RuleInfoOf<Rules>()...};
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

std::vector<std::string> RuleInfo::hyper_parameters() const {
  std::vector<std::string> names;
  for (const HyperParameter& one : hyper) names.push_back(one.name);
  return names;
}

std::vector<SlotSpec> RuleInfo::Slots(int64_t dim, Span<const float> values) const {
  std::vector<SlotSpec> specs;
  for (const RuleSlot& slot : slots) {
    specs.push_back(SlotSpec{slot.one_per_row ? 1 : dim, SlotFill(*this, slot, values), slot.one_per_row});
  }
  return specs;
}

std::vector<std::string> RuleInfo::slot_names() const {
  std::vector<std::string> names;
  for (const RuleSlot& slot : slots) names.push_back(slot.name);
  return names;
}

const std::vector<const RuleInfo*>& KnownRules() {
  static const std::vector<const RuleInfo*> rules = InfosOf(AllRules());
  return rules;
}

StatusOr<const RuleInfo*> FindRule(std::string_view name) {
  std::string known;
  for (const RuleInfo* rule : KnownRules()) {
    if (name == rule->name) return rule;
    known += (known.empty() ? "" : ", ") + rule->name;
  }
  return InvalidArgument("Unknown optimizer '", name, "'; known are ", known);
}

}  // namespace sok
