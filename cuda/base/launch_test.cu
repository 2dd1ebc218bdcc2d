// Launches of every size reach every piece of work once, and errors are statuses.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/base/launch.h"
#include "cuda/base/testing/device_array.h"

namespace sok {
namespace {

__global__ void AddOne(int* counts, int64_t n) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) ++counts[i];
}

TEST(LaunchTest, EveryElementIsReachedOnce) {
  for (const int64_t n : {0, 1, 31, 255, 256, 257, 2000}) {
    DeviceArray<int> counts(std::vector<int>(n + 1, 0));
    ASSERT_TRUE(Launch("AddOne", nullptr, ShapeFor(n), AddOne, counts.data(), n).ok());
    std::vector<int> expected(n + 1, 1);
    expected[n] = 0;
    EXPECT_EQ(counts.Fetch(), expected);
  }
}

TEST(LaunchTest, FewerThreadsThanWorkLoop) {
  DeviceArray<int> counts(std::vector<int>(1000, 0));
  ASSERT_TRUE(Launch("AddOne", nullptr, {3, 64, 0}, AddOne, counts.data(), 1000).ok());
  EXPECT_EQ(counts.Fetch(), std::vector<int>(1000, 1));
}

__global__ void Combine(const unsigned* values, unsigned* sums, unsigned* unions) {
  AwaitPreviousKernels();
  const unsigned value = values[threadIdx.x];
  sums[threadIdx.x] = ReduceInWarp(value, [](unsigned a, unsigned b) { return a + b; });
  unions[threadIdx.x] = ReduceInWarp(value, [](unsigned a, unsigned b) { return a | b; });
}

TEST(LaunchTest, EachLaneGetsWhatItsWarpHas) {
  std::vector<unsigned> values(64), sums(64, 0), unions(64, 0);
  for (int t = 0; t < 64; ++t) values[t] = 1u << (t * 7 % 31);
  for (int t = 0; t < 64; ++t) {
    for (int other = t / 32 * 32; other < t / 32 * 32 + 32; ++other) {
      sums[t] += values[other];
      unions[t] |= values[other];
    }
  }
  DeviceArray<unsigned> given(values), sum(values), or_of(values);
  ASSERT_TRUE(Launch("Combine", nullptr, {1, 64, 0}, Combine, given.data(), sum.data(), or_of.data()).ok());
  EXPECT_EQ(sum.Fetch(), sums);
  EXPECT_EQ(or_of.Fetch(), unions);
}

TEST(LaunchTest, ShapesHoldTheWork) {
  EXPECT_EQ(ShapeFor(0).blocks, 0);
  EXPECT_EQ(ShapeFor(257).blocks, 2);
  EXPECT_EQ(ShapeFor(8, 32).blocks, 1);
  EXPECT_EQ(ShapeFor(9, 32).blocks, 2);
  EXPECT_EQ(ShapeFor(9, 32, 64).blocks, 5);
  EXPECT_EQ(ShapeFor(int64_t{1} << 50).blocks, kMaxBlocks);
}

TEST(LaunchTest, AShapeThatNoDeviceHasIsAnError) {
  const Status status = Launch("AddOne", nullptr, {1, 4096, 0}, AddOne, static_cast<int*>(nullptr), 0);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("AddOne"), std::string::npos) << status.message();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the error stays for others to find";
}

}  // namespace
}  // namespace sok
