#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "cuda/programs/benchmark/draw_ids.h"
#include "cuda/programs/benchmark/quartiles.h"

namespace sok {
namespace {

// How often each id was drawn, the most frequent first.
std::vector<double> Frequencies(const std::vector<int64_t>& ids) {
  std::map<int64_t, double> counts;
  for (const int64_t id : ids) counts[id] += 1.0 / static_cast<double>(ids.size());
  std::vector<double> frequencies;
  for (const auto& [id, frequency] : counts) frequencies.push_back(frequency);
  std::sort(frequencies.rbegin(), frequencies.rend());
  return frequencies;
}

TEST(DrawIdsTest, FrequenciesFallAsTheExponentSays) {
  constexpr int64_t kKeys = 1000;
  for (const double s : {0.8, 1.0, 1.05, 1.5}) {
    SCOPED_TRACE(s);
    double total = 0;
    for (int64_t k = 1; k <= kKeys; ++k) total += std::pow(static_cast<double>(k), -s);
    const std::vector<double> frequencies = Frequencies(DrawIds({s}, 400'000, kKeys, 1));
    for (const int64_t k : {1, 2, 3, 5, 10, 30}) {
      const double expected = std::pow(static_cast<double>(k), -s) / total;
      EXPECT_NEAR(frequencies[static_cast<size_t>(k - 1)] / expected, 1, 0.06) << k;
    }
  }
}

TEST(DrawIdsTest, UniformIdsAreEquallyFrequent) {
  const std::vector<double> frequencies = Frequencies(DrawIds({0}, 400'000, 100, 1));
  ASSERT_EQ(frequencies.size(), 100u);
  EXPECT_NEAR(frequencies.front(), 0.01, 0.001);
  EXPECT_NEAR(frequencies.back(), 0.01, 0.001);
}

TEST(DrawIdsTest, IdsAreKeysAndDependOnTheSeed) {
  for (const double s : {0.0, 1.05}) {
    for (const int64_t keys : {1, 2, 7919, 15838}) {
      const std::vector<int64_t> ids = DrawIds({s}, 2000, keys, 3);
      EXPECT_GE(*std::min_element(ids.begin(), ids.end()), 0);
      EXPECT_LT(*std::max_element(ids.begin(), ids.end()), keys);
    }
    EXPECT_EQ(DrawIds({s}, 100, 1000, 3), DrawIds({s}, 100, 1000, 3));
    EXPECT_NE(DrawIds({s}, 100, 1000, 3), DrawIds({s}, 100, 1000, 4));
  }
  EXPECT_EQ(IdsDrawn{0}.name(), "uniform");
  EXPECT_EQ(IdsDrawn{1.05}.name(), "zipf 1.05");
}

TEST(QuartilesTest, OfNoneOneAndFew) {
  EXPECT_EQ(QuartilesOf({}).values, 0);
  EXPECT_EQ(QuartilesOf({3}).median, 3);
  EXPECT_EQ(QuartilesOf({3}).third, 3);
  const Quartiles of_four = QuartilesOf({4, 1, 3, 2});
  EXPECT_EQ(of_four.least, 1);
  EXPECT_EQ(of_four.first, 1.75);
  EXPECT_EQ(of_four.median, 2.5);
  EXPECT_EQ(of_four.third, 3.25);
  EXPECT_EQ(of_four.most, 4);
  EXPECT_EQ(of_four.values, 4);
}

TEST(QuartilesTest, OutliersAreFarFromTheMiddleHalf) {
  EXPECT_EQ(QuartilesOf({10, 11, 12, 13, 14}).outliers, 0);
  EXPECT_EQ(QuartilesOf({10, 11, 12, 13, 100}).outliers, 1);
  EXPECT_EQ(QuartilesOf({0, 10, 11, 12, 13, 14, 100}).outliers, 2);
  EXPECT_EQ(QuartilesOf({5, 5, 5, 5}).outliers, 0);
}

}  // namespace
}  // namespace sok
