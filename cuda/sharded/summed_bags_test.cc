// Sums of bags are divided, and their gradients scaled, with the bits of cc/pooling.
#include "cuda/sharded/summed_bags.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "cc/pooling/divisor.h"
#include "cuda/device_array.h"

namespace sok {
namespace {

constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN};
constexpr int64_t kDims[] = {1, 2, 3, 4, 7, 16, 31, 33, 100};

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = value(random);
  return values;
}

// Bags of no id, of one, of up to nine, whose sums are multiplied by the inverse, and of more.
std::vector<int32_t> BagBegins() {
  std::vector<int32_t> begin = {17};
  for (const int32_t length : {0, 1, 2, 3, 9, 10, 11, 0, 300}) begin.push_back(begin.back() + length);
  return begin;
}

TEST(SummedBagsTest, DividesAsTheCpu) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  const std::vector<int32_t> begin = BagBegins();
  const auto bags = static_cast<int64_t>(begin.size()) - 1;
  DeviceArray<int32_t> device_begin(begin);
  for (const int64_t dim : kDims) {
    for (const Combiner combiner : kCombiners) {
      const int64_t stride = dim + 1;
      std::vector<float> expected = RandomFloats(bags * stride, 1);
      DeviceArray<float> sums(expected);
      for (int64_t b = 0; b < bags; ++b) {
        const int64_t ids = begin[b + 1] - begin[b];
        const float divisor = UnweightedDivisor(combiner, ids);
        if (divisor != 0.0f) DivideUnweighted(divisor, ids, dim, expected.data() + b * stride);
      }
      const DividedSums divided = {device_begin.data(), bags, combiner, dim, {sums.data(), stride}};
      ASSERT_TRUE(EnqueueDivisions(nullptr, Span<const DividedSums>(&divided, 1)).ok());
      EXPECT_EQ(sums.Fetch(), expected) << "dim " << dim;
    }
  }
}

TEST(SummedBagsTest, ScalesGradientsAsTheCpu) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  const std::vector<int32_t> begin = BagBegins();
  const std::vector<int32_t> bags = {1, 8, 2, 8, 5, 4, 3, 1};
  const auto sums = static_cast<int64_t>(bags.size());
  DeviceArray<int32_t> device_begin(begin);
  DeviceArray<int32_t> device_bags(bags);
  for (const int64_t dim : kDims) {
    for (const Combiner combiner : kCombiners) {
      const int64_t stride = dim + 2;
      const std::vector<float> gradient = RandomFloats((static_cast<int64_t>(begin.size()) - 1) * stride, 2);
      std::vector<float> expected;
      for (const int32_t bag : bags) {
        const float scale = UnweightedScale(combiner, begin[bag + 1] - begin[bag]);
        for (int64_t c = 0; c < dim; ++c) expected.push_back(scale * gradient[bag * stride + c]);
      }
      DeviceArray<float> device_gradient(gradient);
      DeviceArray<float> out(std::vector<float>(expected.size(), 7.0f));
      const GradientsOfSums of_sums = {
          device_begin.data(), combiner, dim,       {device_gradient.data(), stride},
          device_bags.data(),  sums,     out.data()};
      ASSERT_TRUE(EnqueueSumGradients(nullptr, Span<const GradientsOfSums>(&of_sums, 1)).ok());
      EXPECT_EQ(out.Fetch(), expected) << "dim " << dim;
    }
  }
}

}  // namespace
}  // namespace sok
