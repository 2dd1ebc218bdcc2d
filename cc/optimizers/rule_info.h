#ifndef SOK_CC_OPTIMIZERS_RULE_INFO_H_
#define SOK_CC_OPTIMIZERS_RULE_INFO_H_

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/rule.h"

namespace sok {

// One slot of an optimizer in a row's record: `width` floats, each `fill` until the row is trained. Slots of
// one number a row are not those as wide as rows of one weight.
struct SlotSpec {
  int64_t width;
  float fill;
  bool one_per_row = false;
};

// The constants of a rule (see rule.h) as run-time values.
struct RuleInfo {
  std::string name;
  std::string source;
  UntouchedRows untouched;
  std::vector<HyperParameter> hyper;
  std::vector<RuleSlot> slots;              // in the order of the record
  std::vector<std::vector<float>> samples;  // hyper-parameters for tests; at least one sample
  bool mixes_elements;                      // see kMixesElements
  void (*reference)(const double* hyper, ReferenceRow row);
  bool (*has_same_bits_everywhere)(const float* hyper);

  // InvalidArgument unless `values` holds all hyper-parameters in their order, finite and in their ranges.
  // The message names the optimizer, the hyper-parameter and the value.
  Status CheckHyper(Span<const float> values) const;

  // The names of the hyper-parameters, in their order.
  std::vector<std::string> hyper_parameters() const;

  // The slots of a row of `dim` weights, in the order of the record, and their names. The initial values of
  // slots may come from `values`, which must have passed CheckHyper.
  std::vector<SlotSpec> Slots(int64_t dim, Span<const float> values) const;
  std::vector<std::string> slot_names() const;
};

// A range in words that can follow "must be".
const char* Describe(HyperRange range);

template <typename Rule>
RuleInfo MakeRuleInfo() {
  RuleInfo info;
  info.name = Rule::kName;
  info.source = Rule::kSource;
  info.untouched = Rule::kUntouched;
  info.hyper.assign(std::begin(Rule::kHyper), std::end(Rule::kHyper));
  for (const RuleSlot& slot : Rule::kSlots) {
    if (slot.name != nullptr) info.slots.push_back(slot);
  }
  static_assert(std::size(Rule::kSamples[0]) == std::size(Rule::kHyper),
                "a sample has a value for each hyper-parameter");
  for (const auto& sample : Rule::kSamples) {
    info.samples.emplace_back(std::begin(sample), std::end(sample));
  }
  info.mixes_elements = kMixesElements<Rule>;
  info.reference = Rule::Reference;
  info.has_same_bits_everywhere = Rule::HasSameBitsEverywhere;
  return info;
}

// The one RuleInfo of a rule.
template <typename Rule>
const RuleInfo& RuleInfoOf() {
  static const RuleInfo info = MakeRuleInfo<Rule>();
  return info;
}

// All rules, in the order of rules.h. docs/optimizers.md lists them in a table.
const std::vector<const RuleInfo*>& KnownRules();

// The rule with that name. InvalidArgument for an unknown name; the message lists the known names.
StatusOr<const RuleInfo*> FindRule(std::string_view name);

// The steps that rows may have missed. A checkpoint with such rows keeps them, so that the rows can catch up
// after a restore.
struct PastSteps {
  float beta1 = 0.0f;
  float beta2 = 0.0f;
  float epsilon = 0.0f;
  int64_t first_step = 0;     // the optimizer's steps() before the first of these steps
  std::vector<float> alphas;  // the bias-corrected learning rate of each step
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_RULE_INFO_H_
