// The values follow their distributions: moments, ranges and the distribution function.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/initializers/initializer.h"

namespace sok {
namespace {

constexpr int64_t kRows = 4000;
constexpr int64_t kDim = 50;

// The values of many rows, sorted.
std::vector<float> Sample(const Initializer& initializer) {
  std::vector<float> values(kRows * kDim);
  for (int64_t row = 0; row < kRows; ++row) {
    FillRow(initializer, row - kRows / 2, Span<float>(values).subspan(row * kDim, kDim));
  }
  std::sort(values.begin(), values.end());
  return values;
}

double Mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += v;
  return sum / values.size();
}

double Stddev(const std::vector<float>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const float v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / values.size());
}

// The Kolmogorov-Smirnov statistic: the largest distance between the sample's distribution function and
// `distribution`, times the square root of the sample's size. It exceeds 1.95 in one of a thousand samples;
// the seeds here are fixed.
template <typename F>
double Distance(const std::vector<float>& sorted, F distribution) {
  double distance = 0;
  const double n = sorted.size();
  for (size_t i = 0; i < sorted.size(); ++i) {
    const double p = distribution(sorted[i]);
    distance = std::max({distance, p - i / n, (i + 1) / n - p});
  }
  return distance * std::sqrt(n);
}

double NormalDistribution(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

TEST(DistributionTest, Constant) {
  const std::vector<float> values = Sample({InitializerKind::kConstant, 0.25f, 7.0f, 1});
  EXPECT_EQ(values.front(), 0.25f);
  EXPECT_EQ(values.back(), 0.25f);
}

TEST(DistributionTest, Uniform) {
  const std::vector<float> values = Sample({InitializerKind::kUniform, -0.05f, 0.05f, 1});
  EXPECT_GE(values.front(), -0.05f);
  EXPECT_LT(values.back(), 0.05f);
  EXPECT_NEAR(Mean(values), 0.0, 4 * 0.0289 / std::sqrt(values.size()));
  EXPECT_NEAR(Stddev(values), 0.1 / std::sqrt(12.0), 2e-4);
  EXPECT_LT(Distance(values, [](double x) { return (x + 0.05) / 0.1; }), 1.95);
}

TEST(DistributionTest, Normal) {
  const std::vector<float> values = Sample({InitializerKind::kNormal, 1.5f, 2.0f, 2});
  EXPECT_NEAR(Mean(values), 1.5, 4 * 2.0 / std::sqrt(values.size()));
  EXPECT_NEAR(Stddev(values), 2.0, 0.015);
  EXPECT_LT(Distance(values, [](double x) { return NormalDistribution((x - 1.5) / 2.0); }), 1.95);
}

TEST(DistributionTest, TruncatedNormal) {
  const std::vector<float> values = Sample({InitializerKind::kTruncatedNormal, 1.5f, 2.0f, 3});
  EXPECT_GE(values.front(), 1.5f - 4.0f);
  EXPECT_LE(values.back(), 1.5f + 4.0f);
  // Values come close to both bounds, which a truncation at fewer deviations would not give.
  EXPECT_LT(values.front(), -2.49f);
  EXPECT_GT(values.back(), 5.49f);
  EXPECT_NEAR(Mean(values), 1.5, 4 * 1.76 / std::sqrt(values.size()));
  // The standard deviation of a normal variable truncated at two standard deviations is 0.87963 of its own.
  EXPECT_NEAR(Stddev(values), 2.0 * 0.87962566, 0.012);
  const double tail = NormalDistribution(-2);
  EXPECT_LT(Distance(values,
                     [&](double x) { return (NormalDistribution((x - 1.5) / 2.0) - tail) / (1 - 2 * tail); }),
            1.95);
}

TEST(DistributionTest, UniformNeverReachesItsEndEvenIfFloatsAreCoarse) {
  // 17 floats lie in this closed interval, 16 without its upper bound.
  const Initializer initializer{InitializerKind::kUniform, 1048576.0f, 1048578.0f, 4};
  const std::vector<float> values = Sample(initializer);
  EXPECT_EQ(values.front(), 1048576.0f);
  EXPECT_EQ(values.back(), 1048577.875f);
  for (float v = 1048576.0f; v < 1048578.0f; v += 0.125f) {
    const auto range = std::equal_range(values.begin(), values.end(), v);
    EXPECT_NEAR((range.second - range.first) * 16.0 / values.size(), 1.0, 0.05) << v;
  }
}

TEST(DistributionTest, AnEmptyIntervalGivesItsBegin) {
  EXPECT_EQ(InitialValue({InitializerKind::kUniform, 0.5f, 0.5f, 4}, 3, 1), 0.5f);
}

// Neither columns of a row, nor rows of neighbouring keys, nor tables of neighbouring seeds are correlated.
TEST(DistributionTest, NeighboursAreIndependent) {
  const Initializer initializer{InitializerKind::kNormal, 0.0f, 1.0f, 5};
  Initializer next_seed = initializer;
  next_seed.seed = 6;
  double columns = 0;
  double keys = 0;
  double seeds = 0;
  const int64_t n = 100000;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t key = i / 10;
    const int64_t column = i % 10;
    const double value = InitialValue(initializer, key, column);
    columns += value * InitialValue(initializer, key, column + 1);
    keys += value * InitialValue(initializer, key + 1, column);
    seeds += value * InitialValue(next_seed, key, column);
  }
  const double limit = 4 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(columns / n, 0.0, limit);
  EXPECT_NEAR(keys / n, 0.0, limit);
  EXPECT_NEAR(seeds / n, 0.0, limit);
}

}  // namespace
}  // namespace sok
