#include "cc/cpu/optimizers/optimizer.h"
#include "cc/engine/contract/engine_case.h"
#include "cc/engine/registry.h"

namespace sok {

const EngineCase& EngineOfTests() {
  static const EngineCase* const cpu = [] {
    auto* const engine_case = new EngineCase;
    engine_case->name = "cpu";
    engine_case->engine = FindEngine("cpu").value();
    engine_case->threads = {1, 2, 3, 4};
    for (const RuleInfo* rule : KnownRules()) engine_case->optimizers.push_back(rule->name);
    return engine_case;
  }();
  return *cpu;
}

}  // namespace sok
