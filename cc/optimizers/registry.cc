// Makes the optimizers of rules.h.
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cc/optimizers/decaying_slots_optimizer.h"
#include "cc/optimizers/exact_adam.h"
#include "cc/optimizers/optimizer.h"
#include "cc/optimizers/rules.h"
#include "cc/optimizers/touched_rows_optimizer.h"

namespace sok {
namespace {

struct Entry {
  const RuleInfo* rule;
  std::unique_ptr<Optimizer> (*make)();
};

template <typename Rule>
std::unique_ptr<Optimizer> Make() {
  if constexpr (Rule::kUntouched == UntouchedRows::kStay) {
    return std::make_unique<TouchedRowsOptimizer<Rule>>();
  } else if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
    return std::make_unique<DecayingSlotsOptimizer<Rule>>();
  } else {
    static_assert(std::is_same_v<Rule, Adam>, "only Adam's missed steps have a closed form");
    return std::make_unique<ExactAdam>();
  }
}

template <typename... Rules>
std::vector<Entry> Entries(RuleList<Rules...>) {
  return {Entry{&RuleInfoOf<Rules>(), Make<Rules>}...};
}

const std::vector<Entry>& Registry() {
  static const std::vector<Entry> entries = Entries(AllRules());
  return entries;
}

}  // namespace

std::vector<const RuleInfo*> KnownRules() {
  std::vector<const RuleInfo*> rules;
  for (const Entry& entry : Registry()) rules.push_back(entry.rule);
  return rules;
}

StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(std::string_view name) {
  std::string known;
  for (const Entry& entry : Registry()) {
    if (name == entry.rule->name) return entry.make();
    known += (known.empty() ? "" : ", ") + entry.rule->name;
  }
  return InvalidArgument("Unknown optimizer '", name, "'; known are ", known);
}

}  // namespace sok
