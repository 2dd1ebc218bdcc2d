// Tables of which a few rows are in device memory, so that nearly every lookup moves rows, pass the engine
// contract: with host memory below for all others, and for some more with a disk below that.
#include "cc/engine/contract/suites.h"
#include "cc/optimizers/rule_info.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

EngineCase TiersCase() {
  EngineCase engine_case = GpuCase();
  engine_case.name = "gpu_with_tiers";
  engine_case.tiers.memory_bytes = 400;
  engine_case.tiers.by_frequency = true;
  engine_case.optimizers = {"sgd", "lazy_adam", "adam", "adagrad_decay", "rowwise_adagrad"};
  return engine_case;
}

EngineCase DiskCase() {
  EngineCase engine_case = TiersCase();
  engine_case.name = "gpu_with_disk";
  engine_case.tiers.folder = testing::TempDir();
  engine_case.tiers.host_bytes = 500;
  // The case above takes the larger steps.
  engine_case.is_slowest = true;
  return engine_case;
}

#define SOK_TIERS_OFFER(suite)                                                         \
  INSTANTIATE_TEST_SUITE_P(GpuTiers, suite, testing::Values(TiersCase()), NameOfCase); \
  INSTANTIATE_TEST_SUITE_P(GpuDisk, suite, testing::Values(DiskCase()), NameOfCase)

SOK_TIERS_OFFER(TableContract);
SOK_TIERS_OFFER(StaticContract);
SOK_TIERS_OFFER(EraseContract);
SOK_TIERS_OFFER(LookupContract);
SOK_TIERS_OFFER(PrefetchContract);
SOK_TIERS_OFFER(RanksContract);
SOK_TIERS_OFFER(AdmissionContract);
SOK_TIERS_OFFER(CapacityContract);
SOK_TIERS_OFFER(SaveEvictionContract);
SOK_TIERS_OFFER(ContentsContract);
SOK_TIERS_OFFER(GradientContract);
SOK_TIERS_OFFER(WeightsContract);
SOK_TIERS_OFFER(TrainingContract);
SOK_TIERS_OFFER(FusedContract);
SOK_TIERS_OFFER(RecordTypesContract);

}  // namespace
}  // namespace sok
