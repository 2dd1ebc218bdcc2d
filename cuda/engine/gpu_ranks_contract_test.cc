// Groups over ranks of the CUDA engine pass the engine contract.
#include "cc/engine/contract/suites.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

TEST(GpuContractTest, ThereIsADevice) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
}

INSTANTIATE_TEST_SUITE_P(Gpu, RanksContract, testing::ValuesIn(GpuCases()), NameOfCase);

}  // namespace
}  // namespace sok
