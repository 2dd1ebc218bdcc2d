// Without a driver the library loads, and its launchers return errors.
#include "cuda/device_array.h"
#include "cuda/shared_arithmetic.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

TEST(WithoutDevice, LaunchersReturnAnError) {
  if (HasDevice()) GTEST_SKIP() << "this machine has a CUDA device";
  EXPECT_NE(EvaluateMix64(nullptr, nullptr, nullptr, 5), cudaSuccess);
  EXPECT_EQ(EvaluateMix64(nullptr, nullptr, nullptr, 0), cudaSuccess);
}

}  // namespace
}  // namespace sok
