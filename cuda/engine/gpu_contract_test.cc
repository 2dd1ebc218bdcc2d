// The CUDA engine passes the engine contract; gpu_training_contract_test has its gradients and steps.
#include "cc/engine/contract/suites.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

#define SOK_GPU_OFFERS(suite) INSTANTIATE_TEST_SUITE_P(Gpu, suite, testing::Values(GpuCase()), NameOfCase)

SOK_GPU_OFFERS(TableContract);
SOK_GPU_OFFERS(StaticContract);
SOK_GPU_OFFERS(EraseContract);
SOK_GPU_OFFERS(LookupContract);
SOK_GPU_OFFERS(PrefetchContract);
SOK_GPU_OFFERS(RanksContract);
SOK_GPU_OFFERS(AdmissionContract);
SOK_GPU_OFFERS(CapacityContract);
SOK_GPU_OFFERS(SaveEvictionContract);
SOK_GPU_OFFERS(ContentsContract);

}  // namespace
}  // namespace sok
