// Without a driver the library loads, its engine registers itself, and calls return errors.
#include <cuda_runtime.h>

#include "cc/base/executor.h"
#include "cc/engine/registry.h"
#include "cuda/shared_arithmetic.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

Engine* GpuEngineOfRegistry() {
  const StatusOr<Engine*> found = FindEngine("gpu");
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? found.value() : nullptr;
}

class WithoutDevice : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const bool has_device = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    if (has_device) GTEST_SKIP() << "this machine has a CUDA device";
  }
};

TEST_F(WithoutDevice, LaunchersReturnAnError) {
  EXPECT_NE(EvaluateMix64(nullptr, nullptr, nullptr, 5), cudaSuccess);
  EXPECT_EQ(EvaluateMix64(nullptr, nullptr, nullptr, 0), cudaSuccess);
}

TEST_F(WithoutDevice, TheEngineIsThereAndPlansAndScratchCanBeMade) {
  Engine* const engine = GpuEngineOfRegistry();
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->name(), "gpu");
  EXPECT_NE(engine->NewPlan(), nullptr);
  EXPECT_NE(engine->NewScratch(), nullptr);
}

TEST_F(WithoutDevice, ATableIsAnErrorThatNamesTheVariable) {
  Engine* const engine = GpuEngineOfRegistry();
  ASSERT_NE(engine, nullptr);
  InlineExecutor executor;
  for (const bool use_hashtable : {true, false}) {
    TableOptions options;
    options.name = "clicks";
    options.dim = 4;
    options.use_hashtable = use_hashtable;
    options.capacity = use_hashtable ? 0 : 10;
    const auto made = engine->MakeTable(EngineContext{executor}, options);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(made.status().message().find("'clicks'"), std::string::npos) << made.status().message();
    EXPECT_NE(made.status().message().find("CUDA device"), std::string::npos) << made.status().message();
  }
}

TEST_F(WithoutDevice, WrongOptionsAreTheFirstError) {
  InlineExecutor executor;
  TableOptions options;
  options.name = "clicks";
  options.dim = 0;
  const auto made = GpuEngineOfRegistry()->MakeTable(EngineContext{executor}, options);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument) << made.status().message();
}

}  // namespace
}  // namespace sok
