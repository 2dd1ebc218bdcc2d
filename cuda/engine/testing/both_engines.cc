#include "cuda/engine/testing/both_engines.h"

#include "cc/engine/contract/engine_case.h"
#include "cc/optimizers/rule_info.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

const EngineCase*& CurrentEngine() {
  static const EngineCase* current = &GpuEngineOfTests();
  return current;
}

const EngineCase* WithOptimizers(EngineCase engine_case) {
  for (const RuleInfo* rule : KnownRules()) engine_case.optimizers.push_back(rule->name);
  return new EngineCase(engine_case);
}

}  // namespace

const EngineCase& CpuEngineOfTests() {
  static const EngineCase* const cpu = WithOptimizers(CpuCase());
  return *cpu;
}

const EngineCase& GpuEngineOfTests() {
  static const EngineCase* const gpu = WithOptimizers(GpuCase());
  return *gpu;
}

const EngineCase& EngineOfTests() { return *CurrentEngine(); }

UseEngine::UseEngine(const EngineCase& engine_case) : before_(CurrentEngine()) {
  CurrentEngine() = &engine_case;
}

UseEngine::~UseEngine() { CurrentEngine() = before_; }

}  // namespace sok
