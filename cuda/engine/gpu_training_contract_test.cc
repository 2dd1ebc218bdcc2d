// Gradients and steps of the CUDA engine pass the engine contract.
#include "cc/engine/contract/suites.h"
#include "cc/optimizers/rule_info.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

EngineCase TrainingCase() {
  EngineCase engine_case = GpuCase();
#ifdef __SANITIZE_THREAD__
  // In the rules of optimizers threads share no memory, so three rules suffice: one without slots, one with a
  // number per row, and one with a history.
  engine_case.optimizers = {"sgd", "adagrad_decay", "adam"};
#else
  for (const RuleInfo* rule : KnownRules()) engine_case.optimizers.push_back(rule->name);
#endif
  return engine_case;
}

#define SOK_GPU_OFFERS(suite) \
  INSTANTIATE_TEST_SUITE_P(Gpu, suite, testing::Values(TrainingCase()), NameOfCase)

SOK_GPU_OFFERS(GradientContract);
SOK_GPU_OFFERS(WeightsContract);
SOK_GPU_OFFERS(TrainingContract);
SOK_GPU_OFFERS(FusedContract);
SOK_GPU_OFFERS(RecordTypesContract);

}  // namespace
}  // namespace sok
