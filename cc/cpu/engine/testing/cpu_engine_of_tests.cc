#include <gtest/gtest.h>

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
#ifdef SOK_TESTS_HAVE_DISK
    // Memory for a few rows: most calls move rows between memory and disk.
    engine_case->name = "cpu_with_disk";
    engine_case->tiers.memory_bytes = 400;
    engine_case->tiers.folder = testing::TempDir();
#endif
    for (const RuleInfo* rule : KnownRules()) engine_case->optimizers.push_back(rule->name);
    return engine_case;
  }();
  return *cpu;
}

}  // namespace sok
