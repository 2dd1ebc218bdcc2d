// Instantiates the whole contract for the engine that the test program is linked with.
#include "cc/engine/contract/engine_case.h"
#include "cc/engine/contract/suites.h"

namespace sok {
namespace {

#define SOK_OFFERED(suite) \
  INSTANTIATE_TEST_SUITE_P(All, suite, testing::ValuesIn({EngineOfTests()}), NameOfCase)

SOK_OFFERED(TableContract);
SOK_OFFERED(StaticContract);
SOK_OFFERED(EraseContract);
SOK_OFFERED(LookupContract);
SOK_OFFERED(PrefetchContract);
SOK_OFFERED(GradientContract);
SOK_OFFERED(WeightsContract);
SOK_OFFERED(TrainingContract);
SOK_OFFERED(FusedContract);
SOK_OFFERED(RecordTypesContract);
SOK_OFFERED(AdmissionContract);
SOK_OFFERED(CapacityContract);
SOK_OFFERED(SaveEvictionContract);
SOK_OFFERED(RanksContract);
SOK_OFFERED(ContentsContract);

}  // namespace
}  // namespace sok
