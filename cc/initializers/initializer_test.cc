// An initial row is a function of seed and key alone, and its bits never change.
#include "cc/initializers/initializer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/testing/vector_levels.h"

namespace sok {
namespace {

constexpr InitializerKind kKinds[] = {InitializerKind::kConstant, InitializerKind::kUniform,
                                      InitializerKind::kNormal, InitializerKind::kTruncatedNormal};

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

void ExpectFillRowEqualsInitialValue(const Initializer& initializer) {
  constexpr float kAfterTheRow = 77.0f;
  for (const int64_t dim : {1, 2, 3, 4, 7, 16, 63, 64, 129, 1025}) {
    for (const int64_t key : HostileIds()) {
      std::vector<float> row(dim + 16, kAfterTheRow);
      FillRow(initializer, key, Span<float>(row).subspan(0, dim));
      for (int64_t c = 0; c < dim; ++c) ASSERT_EQ(Bits(row[c]), Bits(InitialValue(initializer, key, c)));
      ASSERT_EQ(std::count(row.begin() + dim, row.end(), kAfterTheRow), 16);
    }
  }
}

TEST(InitializerTest, FillRowEqualsInitialValueAtEveryVectorLevel) {
  for (const VectorLevel level : VectorLevels()) {
    const WithVectorLevel with_level(level);
    for (const InitializerKind kind : kKinds) {
      ExpectFillRowEqualsInitialValue({kind, -1.0f, 2.0f, 99});
      ExpectFillRowEqualsInitialValue({kind, -1.0f, 2.0f, 99, /*rows=*/4096});
    }
  }
}

TEST(InitializerTest, KeysTakeGivenRowsByTheirRemainders) {
  constexpr int64_t kDim = 2;
  const std::vector<float> given = {0.5f, -0.0f, 3e38f, -1e-42f, 7.0f, 8.0f};
  for (const uint32_t rows : {1u, 3u}) {
    Initializer initializer{InitializerKind::kGiven, 0.0f, 0.0f, 99, rows};
    initializer.given = given.data();
    for (const int64_t key : HostileIds()) {
      const int64_t remainder = (key % int64_t{rows} + rows) % rows;
      std::vector<float> row(kDim + 1, 77.0f);
      FillRow(initializer, key, Span<float>(row).subspan(0, kDim));
      for (int64_t c = 0; c < kDim; ++c) {
        ASSERT_EQ(Bits(row[c]), Bits(given[remainder * kDim + c])) << key;
      }
      ASSERT_EQ(row.back(), 77.0f);
    }
  }
}

TEST(InitializerTest, KeysShareTheInitialRowsOfTheirRemainders) {
  for (const uint32_t rows : {1u, 2u, 7u, 4096u, UINT32_MAX}) {
    const Initializer own{InitializerKind::kUniform, -1.0f, 1.0f, 7};
    const Initializer shared{InitializerKind::kUniform, -1.0f, 1.0f, 7, rows};
    for (const int64_t key : HostileIds()) {
      // The remainder of Euclid's division, in more bits.
      const __int128 divisor = rows;
      const __int128 remainder = ((static_cast<__int128>(key) % divisor) + divisor) % divisor;
      for (const int64_t c : {0, 1, 70}) {
        EXPECT_EQ(Bits(InitialValue(shared, key, c)),
                  Bits(InitialValue(own, static_cast<int64_t>(remainder), c)))
            << key << " in " << rows;
      }
    }
  }
}

TEST(InitializerTest, ValuesDoNotDependOnOrderOrWidth) {
  const Initializer initializer{InitializerKind::kNormal, 0.0f, 1.0f, 7};
  std::vector<float> wide(64);
  FillRow(initializer, 5, Span<float>(wide));
  std::vector<float> other(10);
  FillRow(initializer, 6, Span<float>(other));
  for (int64_t c = 63; c >= 0; --c) EXPECT_EQ(InitialValue(initializer, 5, c), wide[c]);
  std::vector<float> narrow(3);
  FillRow(initializer, 5, Span<float>(narrow));
  EXPECT_EQ(narrow, std::vector<float>(wide.begin(), wide.begin() + 3));
}

TEST(InitializerTest, ValuesDependOnSeedKeyAndColumn) {
  std::set<float> values;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    for (const int64_t key : HostileIds()) {
      for (int64_t column = 0; column < 4; ++column) {
        values.insert(InitialValue({InitializerKind::kNormal, 0.0f, 1.0f, seed}, key, column));
      }
    }
  }
  EXPECT_EQ(values.size(), 3 * HostileIds().size() * 4);
}

// Each rank computes rows by itself, and a restarted run must begin with the same rows: a change of these
// bits breaks both. The expected values come from an independent computation of the formulas.
TEST(InitializerTest, BitsNeverChange) {
  struct Golden {
    InitializerKind kind;
    uint64_t seed;
    int64_t key;
    int64_t column;
    uint32_t bits;
  };
  const Golden goldens[] = {
      {InitializerKind::kUniform, 0u, 0, 0, 0xbd13fc12u},
      {InitializerKind::kUniform, 1u, -1, 1, 0xbd265495u},
      {InitializerKind::kUniform, 12345678901234567890u, (int64_t{1} << 32) + 1, 63, 0x3d3601cbu},
      {InitializerKind::kUniform, 7u, INT64_MAX, 1024, 0xbcb64277u},
      {InitializerKind::kUniform, 7u, INT64_MIN, 2, 0xbb8d3180u},
      {InitializerKind::kNormal, 0u, 0, 0, 0xbdd59eceu},
      {InitializerKind::kNormal, 1u, -1, 1, 0xbded42aau},
      {InitializerKind::kNormal, 12345678901234567890u, (int64_t{1} << 32) + 1, 63, 0x3cf2a61eu},
      {InitializerKind::kNormal, 7u, INT64_MAX, 1024, 0xbda2d72bu},
      {InitializerKind::kNormal, 7u, INT64_MIN, 2, 0xbd62f690u},
      {InitializerKind::kTruncatedNormal, 0u, 0, 0, 0xbdce4b89u},
      {InitializerKind::kTruncatedNormal, 1u, -1, 1, 0xbde2b38cu},
      {InitializerKind::kTruncatedNormal, 12345678901234567890u, (int64_t{1} << 32) + 1, 63, 0x3cb18a30u},
      {InitializerKind::kTruncatedNormal, 7u, INT64_MAX, 1024, 0xbd9fc643u},
      {InitializerKind::kTruncatedNormal, 7u, INT64_MIN, 2, 0xbd61f377u},
  };
  for (const Golden& golden : goldens) {
    const float value = InitialValue({golden.kind, -0.05f, 0.05f, golden.seed}, golden.key, golden.column);
    EXPECT_EQ(Bits(value), golden.bits) << value << " for key " << golden.key;
  }
}

TEST(NormalQuantileTest, LogarithmIsRightToTheLastDigits) {
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    EXPECT_NEAR(PortableLog(x), std::log(x), 4e-16 * std::max(1.0, std::abs(std::log(x)))) << x;
  }
  // Around 1, where the result is small, and around the steps of the exponent.
  for (double x = 0.5; x < 2.1; x += 1.0 / 4096) {
    EXPECT_NEAR(PortableLog(x), std::log(x), 4e-16) << x;
  }
  EXPECT_EQ(PortableLog(1.0), 0.0);
}

// The distribution function of the quantile is the probability it was computed from.
TEST(NormalQuantileTest, InvertsTheDistributionFunction) {
  // The standard library's complementary error function has full precision in the lower tail.
  const auto distribution = [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); };
  int tails = 0;
  for (double p = 1e-16; p < 0.5; p *= 1.01) {
    // An error dz of the quantile changes the probability by phi(z) dz, which is at most (1 + z^2) p |dz /
    // z|.
    const double z = NormalQuantile(p);
    EXPECT_NEAR(distribution(z) / p, 1.0, 1e-15 * (3 + z * z)) << p;
    tails += z < -5;
  }
  EXPECT_GT(tails, 100);
}

TEST(NormalQuantileTest, IsOddAroundOneHalf) {
  EXPECT_EQ(NormalQuantile(0.5), 0.0);
  for (const double p : {0.25, 0.125, 0.0625, 0x1p-20}) {
    EXPECT_LT(NormalQuantile(p), 0.0);
    EXPECT_EQ(NormalQuantile(1.0 - p), -NormalQuantile(p)) << p;
  }
}

TEST(NormalQuantileTest, KnownPoints) {
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963984540054, 4e-15);
  EXPECT_NEAR(NormalQuantile(0.8413447460685429), 1.0, 4e-15);
  EXPECT_NEAR(NormalQuantile(0.022750131948179207), -2.0, 4e-15);
  EXPECT_NEAR(NormalQuantile(0x1p-53), -8.209536151601387, 2e-14);
}

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
