#ifndef SOK_CC_OPTIMIZERS_TESTING_RULE_CASES_H_
#define SOK_CC_OPTIMIZERS_TESTING_RULE_CASES_H_

#include <ostream>
#include <string>
#include <vector>

#include "cc/optimizers/rule_info.h"

namespace sok {

// For tests of all optimizers: a rule and hyper-parameters to train with.
struct RuleCase {
  std::string name;
  std::vector<float> hyper;

  const RuleInfo& rule() const {
    for (const RuleInfo* rule : KnownRules()) {
      if (rule->name == name) return *rule;
    }
    return *KnownRules().front();
  }
};

inline void PrintTo(const RuleCase& c, std::ostream* out) {
  *out << c.name;
  for (float value : c.hyper) *out << " " << value;
}

// Every sample of every rule.
inline std::vector<RuleCase> AllRuleCases() {
  std::vector<RuleCase> cases;
  for (const RuleInfo* rule : KnownRules()) {
    for (const std::vector<float>& sample : rule->samples) cases.push_back({rule->name, sample});
  }
  return cases;
}

// The first sample of every rule.
inline std::vector<RuleCase> OneCasePerRule() {
  std::vector<RuleCase> cases;
  for (const RuleInfo* rule : KnownRules()) cases.push_back({rule->name, rule->samples.front()});
  return cases;
}

// The name of a parameterized test: the rule's name and the number of the case.
template <typename Info>
std::string RuleCaseName(const Info& info) {
  return info.param.name + "_" + std::to_string(info.index);
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_TESTING_RULE_CASES_H_
