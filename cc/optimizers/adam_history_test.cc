#include "cc/optimizers/adam_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sok {
namespace {

// G(y) in the header over `gap` missed steps, summed term by term; alpha(j) is the rate at lag j.
template <typename Alpha>
double TrueSum(double beta1, double beta2, int64_t gap, double y, const Alpha& alpha) {
  const double r = std::sqrt(beta2);
  double sum = 0.0;
  for (int64_t j = 1; j <= gap; ++j) {
    sum += alpha(j) * std::pow(beta1 / r, j) / (1.0 + y * (std::pow(r, -j) - 1.0));
  }
  return sum;
}

// The same through the table's polynomial.
template <typename Alpha>
double SeriesSum(const AdamSeries& series, int64_t gap, double y, const Alpha& alpha) {
  double sum = 0.0;
  for (int64_t j = 1; j <= std::min(gap, series.horizon()); ++j) {
    double power = 1.0;
    for (int c = 0; c < series.terms(); ++c, power *= y) sum += alpha(j) * series.increments(j)[c] * power;
  }
  return sum;
}

std::vector<double> ManyRatios() {
  std::vector<double> ys = {0.0, 1.0};
  for (int i = 1; i < 50; ++i) ys.push_back(i / 50.0);
  for (int e = -8; e < 0; ++e) ys.push_back(std::pow(10.0, e));
  for (int e = -8; e < 0; ++e) ys.push_back(1.0 - std::pow(10.0, e));
  return ys;
}

struct SeriesCase {
  double beta1;
  double beta2;
  int terms;
};

// The first pair of betas is the usual one.
TEST(AdamSeries, ErrorStaysBelowTheBoundWithAConstantRate) {
  for (const SeriesCase& b : {SeriesCase{0.9, 0.999, 4}, SeriesCase{0.9, 0.9999, 4},
                              SeriesCase{0.95, 0.999, 4}, SeriesCase{0.5, 0.999, 4}, SeriesCase{0.9, 0.99, 8},
                              SeriesCase{0.9, 0.98, 8}, SeriesCase{0.99, 0.999, 8}, SeriesCase{0.5, 0.9, 8},
                              SeriesCase{0.99, 0.9999, 4}, SeriesCase{0.9, 1.0, 4}}) {
    const AdamSeries series(b.beta1, b.beta2);
    ASSERT_EQ(series.terms(), b.terms) << b.beta1 << " " << b.beta2;
    EXPECT_LE(series.error_bound(), AdamSeries::kTolerance);
    const auto one = [](int64_t) { return 1.0; };
    for (int64_t gap : {1, 2, 10, 190, 2000}) {
      for (double y : ManyRatios()) {
        const double expected = TrueSum(b.beta1, b.beta2, gap, y, one);
        // The steps beyond the horizon and the rounding of the coefficients are of order 1e-11.
        const double bound = 1.01 * series.error_bound() + 5e-11;
        EXPECT_NEAR(SeriesSum(series, gap, y, one), expected, bound * expected)
            << b.beta1 << " " << b.beta2 << " gap " << gap << " y " << y;
      }
    }
  }
}

TEST(AdamSeries, ErrorOfTheUsualBetasIsBelow1e9) { EXPECT_LT(AdamSeries(0.9, 0.999).error_bound(), 1.1e-10); }

// Each term has its own error bound, so that of the sum is relative to its terms, whatever the rates are. A
// rate of zero in the first hundred missed steps leaves only terms of long lags, which have the largest
// errors.
TEST(AdamSeries, RatesThatStartLate) {
  const AdamSeries series(0.9, 0.999);
  for (int64_t zeros : {10, 50, 100}) {
    const auto late = [&](int64_t j) { return j <= zeros ? 0.0 : 1.0; };
    for (double y : ManyRatios()) {
      const double expected = TrueSum(0.9, 0.999, 2000, y, late);
      EXPECT_NEAR(SeriesSum(series, 2000, y, late), expected, 2e-7 * expected) << zeros << " " << y;
    }
  }
}

TEST(AdamSeries, SumsAreLinearInRatesOfAnySign) {
  const AdamSeries series(0.9, 0.999);
  const auto signs = [](int64_t j) { return j % 3 == 0 ? -2.0 : 1.0; };
  for (double y : ManyRatios()) {
    EXPECT_NEAR(SeriesSum(series, 500, y, signs), TrueSum(0.9, 0.999, 500, y, signs), 1e-9);
  }
}

TEST(AdamSeries, WithoutMomentumMissedStepsMoveNothing) {
  for (double beta2 : {0.0, 0.5, 0.999, 1.0}) {
    const AdamSeries series(0.0, beta2);
    ASSERT_GT(series.terms(), 0);
    for (int c = 0; c < series.terms(); ++c) EXPECT_EQ(series.increments(1)[c], 0.0);
  }
}

TEST(AdamSeries, HasNoTermsIfItWouldBeInaccurate) {
  EXPECT_EQ(AdamSeries(0.9, 0.95).terms(), 0);    // beta2 too small: an error of 5e-5 with 8 terms
  EXPECT_EQ(AdamSeries(0.9, 0.81).terms(), 0);    // q = 1
  EXPECT_EQ(AdamSeries(0.95, 0.5).terms(), 0);    // q > 1
  EXPECT_EQ(AdamSeries(0.9, 0.0).terms(), 0);     // moments vanish at once
  EXPECT_EQ(AdamSeries(0.9999, 1.0).terms(), 0);  // the terms decrease too slowly
}

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
