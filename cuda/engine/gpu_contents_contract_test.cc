// The CUDA engine passes the engine contract for admission, eviction, and rows that are read and written.
#include "cc/engine/contract/suites.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

TEST(GpuContractTest, ThereIsADevice) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
}

#define SOK_GPU_OFFERS(suite) INSTANTIATE_TEST_SUITE_P(Gpu, suite, testing::ValuesIn(GpuCases()), NameOfCase)

SOK_GPU_OFFERS(AdmissionContract);
SOK_GPU_OFFERS(CapacityContract);
SOK_GPU_OFFERS(SaveEvictionContract);
SOK_GPU_OFFERS(ContentsContract);

}  // namespace
}  // namespace sok
