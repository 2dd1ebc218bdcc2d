// The main function of tests of other parts of the library, on a device. They know nothing of devices, so
// where there is none all but one are left out, and that one is skipped.
#include <gtest/gtest.h>

#include "cuda/device_array.h"

namespace sok {
namespace {

TEST(GpuEngineTest, ThereIsADevice) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
}

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!sok::HasDevice()) testing::GTEST_FLAG(filter) = "GpuEngineTest.ThereIsADevice";
  return RUN_ALL_TESTS();
}
