// The CPU engine offers all of the contract.
#include "cc/engine/contract/suites.h"
#include "cc/engine/cpu_engine.h"
#include "cc/optimizers/optimizer.h"

namespace sok {
namespace {

EngineCase CpuCase() {
  static CpuEngine* const engine = new CpuEngine;
  EngineCase engine_case;
  engine_case.name = "cpu";
  engine_case.engine = engine;
  engine_case.threads = {1, 2, 3, 4};
  for (const RuleInfo* rule : KnownRules()) engine_case.optimizers.push_back(rule->name);
  return engine_case;
}

#define SOK_CPU_OFFERS(suite) INSTANTIATE_TEST_SUITE_P(Cpu, suite, testing::Values(CpuCase()), NameOfCase)

SOK_CPU_OFFERS(TableContract);
SOK_CPU_OFFERS(StaticContract);
SOK_CPU_OFFERS(EraseContract);
SOK_CPU_OFFERS(LookupContract);
SOK_CPU_OFFERS(PrefetchContract);
SOK_CPU_OFFERS(GradientContract);
SOK_CPU_OFFERS(WeightsContract);
SOK_CPU_OFFERS(TrainingContract);
SOK_CPU_OFFERS(FusedContract);
SOK_CPU_OFFERS(AdmissionContract);
SOK_CPU_OFFERS(CapacityContract);
SOK_CPU_OFFERS(SaveEvictionContract);
SOK_CPU_OFFERS(RanksContract);
SOK_CPU_OFFERS(ContentsContract);

}  // namespace
}  // namespace sok
