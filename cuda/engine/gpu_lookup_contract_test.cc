// Tables and lookups of the CUDA engine pass the engine contract.
#include "cc/engine/contract/suites.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

TEST(GpuContractTest, ThereIsADevice) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
}

#define SOK_GPU_OFFERS(suite) INSTANTIATE_TEST_SUITE_P(Gpu, suite, testing::ValuesIn(GpuCases()), NameOfCase)

SOK_GPU_OFFERS(TableContract);
SOK_GPU_OFFERS(StaticContract);
SOK_GPU_OFFERS(EraseContract);
SOK_GPU_OFFERS(LookupContract);
SOK_GPU_OFFERS(PrefetchContract);

}  // namespace
}  // namespace sok
