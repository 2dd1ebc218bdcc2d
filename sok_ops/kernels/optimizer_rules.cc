// The rules of cc/optimizers as JSON, for Python, which also loads this library through ctypes.
#include <string>

#include "cc/base/status.h"
#include "cc/optimizers/rule_info.h"

namespace sok {
namespace {

const char* InWords(UntouchedRows untouched) {
  switch (untouched) {
    case UntouchedRows::kStay:
      return "stay";
    case UntouchedRows::kSlotsDecay:
      return "slots decay";
    case UntouchedRows::kMove:
      return "move";
  }
  return "";
}

// Names and sources are constants of cc/optimizers. None needs an escape.
std::string Quoted(const std::string& text) { return "\"" + text + "\""; }

// {"learning_rate": "finite", ...}, in the order in which the rule takes them.
std::string HyperJson(const RuleInfo& rule) {
  std::string json;
  for (const HyperParameter& hyper : rule.hyper) {
    json += StrCat(json.empty() ? "" : ", ", Quoted(hyper.name), ": ", Quoted(Describe(hyper.range)));
  }
  return "{" + json + "}";
}

// {"accumulator": {"fill": "initial_accumulator", "one_per_row": false}, ...}, in the order of the record.
std::string SlotsJson(const RuleInfo& rule) {
  std::string json;
  for (const RuleSlot& slot : rule.slots) {
    json += StrCat(json.empty() ? "" : ", ", Quoted(slot.name),
                   ": {\"fill\": ", slot.fill == nullptr ? "null" : Quoted(slot.fill),
                   ", \"one_per_row\": ", slot.one_per_row ? "true" : "false", "}");
  }
  return "{" + json + "}";
}

std::string RulesJson() {
  std::string json;
  for (const RuleInfo* rule : KnownRules()) {
    json += StrCat(json.empty() ? "" : ", ", Quoted(rule->name), ": {\"source\": ", Quoted(rule->source),
                   ", \"untouched\": ", Quoted(InWords(rule->untouched)), ", \"hyper\": ", HyperJson(*rule),
                   ", \"slots\": ", SlotsJson(*rule), "}");
  }
  return "{" + json + "}";
}

}  // namespace
}  // namespace sok

// The rules, in the order of cc/optimizers/rules.h. The text lives as long as the library.
extern "C" __attribute__((visibility("default"))) const char* SokOptimizerRules() {
  static const std::string json = sok::RulesJson();
  return json.c_str();
}
