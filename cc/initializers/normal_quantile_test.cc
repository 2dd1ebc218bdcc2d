#include "cc/initializers/normal_quantile.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sok {
namespace {

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

}  // namespace
}  // namespace sok
