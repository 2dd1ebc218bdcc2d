#include <gtest/gtest.h>

#include <vector>

#include "cc/cpu/pooling/segment_sum.h"
#include "cc/cpu/pooling/testing/pool_reference.h"
#include "cc/cpu/pooling/testing/random_lookup.h"

namespace sok {
namespace {

// The output of a bag equals the sum of scales[i] * row i.
TEST(BagScales, AreWeightsOverDivisor) {
  const RandomLookup lookup = MakeRandomLookup({}, /*seed=*/1);
  for (Combiner combiner : kAllCombiners) {
    std::vector<float> scales(static_cast<size_t>(lookup.occurrences()), -1.0f);
    BagScales(combiner, lookup.offsets, lookup.weights, Span<float>(scales));
    for (size_t bag = 0; bag + 1 < lookup.offsets.size(); ++bag) {
      const auto begin = lookup.weights.begin() + lookup.offsets[bag];
      const auto end = lookup.weights.begin() + lookup.offsets[bag + 1];
      const float divisor = DivisorReference(combiner, std::vector<float>(begin, end));
      for (auto weight = begin; weight != end; ++weight) {
        EXPECT_EQ(scales[static_cast<size_t>(weight - lookup.weights.begin())], *weight / divisor);
      }
    }
  }
}

TEST(BagScales, WithoutWeightsDependOnTheLengthAlone) {
  std::vector<float> scales(5, -1.0f);
  const std::vector<int64_t> offsets = {0, 4, 4, 5};
  BagScales(Combiner::kSum, offsets, {}, Span<float>(scales));
  EXPECT_EQ(scales, (std::vector<float>{1.0f, 1.0f, 1.0f, 1.0f, 1.0f}));
  BagScales(Combiner::kMean, offsets, {}, Span<float>(scales));
  EXPECT_EQ(scales, (std::vector<float>{0.25f, 0.25f, 0.25f, 0.25f, 1.0f}));
  BagScales(Combiner::kSqrtN, offsets, {}, Span<float>(scales));
  EXPECT_EQ(scales, (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f, 1.0f}));
}

TEST(BagScales, AreZeroIfTheDivisorIsZero) {
  std::vector<float> scales(4, -1.0f);
  const std::vector<float> weights = {0.5f, -0.5f, 0.0f, 0.0f};
  const std::vector<int64_t> offsets = {0, 2, 4};
  BagScales(Combiner::kMean, offsets, weights, Span<float>(scales));
  EXPECT_EQ(scales, std::vector<float>(4, 0.0f));
}

}  // namespace
}  // namespace sok
