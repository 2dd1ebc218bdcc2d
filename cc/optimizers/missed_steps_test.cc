#include "cc/optimizers/missed_steps.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sok {
namespace {

TEST(PowerTable, EqualsPowOfEveryMagnitude) {
  for (double base : {0.0, 0.5, 0.9, static_cast<double>(0.999f), 0.9999999, 1.0}) {
    const PowerTable power(base);
    for (int64_t n : {0, 1, 2, 10, 190, 511, 512, 513, 2000, 131071, 262143, 262144, 100000000, 2147483647}) {
      const double expected = std::pow(base, static_cast<double>(n));
      const double error = n < 512 * 512 ? 1e-15 : 2e-12;
      // A subnormal power has few digits left.
      EXPECT_NEAR(power(n), expected, error * expected + 1e-300) << base << " " << n;
    }
  }
}

}  // namespace
}  // namespace sok
