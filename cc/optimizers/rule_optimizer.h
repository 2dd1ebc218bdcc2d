#ifndef SOK_CC_OPTIMIZERS_RULE_OPTIMIZER_H_
#define SOK_CC_OPTIMIZERS_RULE_OPTIMIZER_H_

#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "cc/optimizers/hyper_check.h"
#include "cc/optimizers/optimizer.h"

namespace sok {

// What an Optimizer says about itself, taken from the constants of `Rule`: kHyper, kSlots, SlotName and
// SlotFill. Slots are as wide as the weights.
template <typename Rule>
class RuleOptimizer : public Optimizer {
 public:
  std::vector<std::string> hyper_parameters() const override {
    std::vector<std::string> names;
    for (const HyperParameter& hyper : Rule::kHyper) names.push_back(hyper.name);
    return names;
  }

  std::vector<SlotSpec> Slots(int64_t dim, Span<const float> hyper) const override {
    std::vector<SlotSpec> slots;
    for (int slot = 0; slot < Rule::kSlots; ++slot) {
      slots.push_back(SlotSpec{dim, Rule::SlotFill(hyper.data(), slot)});
    }
    return slots;
  }

  std::vector<std::string> slot_names() const override {
    std::vector<std::string> names;
    for (int slot = 0; slot < Rule::kSlots; ++slot) names.push_back(Rule::SlotName(slot));
    return names;
  }

 protected:
  explicit RuleOptimizer(std::string_view name) : Optimizer(name) {}

  Status CheckValues(Span<const float> hyper) const override {
    return CheckHyperRanges(name(), Span<const HyperParameter>(Rule::kHyper, std::size(Rule::kHyper)), hyper);
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_RULE_OPTIMIZER_H_
