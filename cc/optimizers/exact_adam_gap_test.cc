// Exact Adam: rows untouched for up to 2000 steps, against dense Adam in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

struct Schedule {
  std::string name;
  std::function<double(int64_t)> rate;  // of step t = 1, 2 ...
};

std::vector<Schedule> Schedules() {
  return {
      {"constant", [](int64_t) { return 1e-3; }},
      {"bias corrected",
       [](int64_t t) { return 1e-3 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)); }},
      {"warm-up", [](int64_t t) { return 1e-5 * static_cast<double>(std::min<int64_t>(t, 100)); }},
      {"decay", [](int64_t t) { return 1e-2 * std::pow(0.97, t); }},
      {"zero", [](int64_t) { return 0.0; }},
      {"starts after 60 steps", [](int64_t t) { return t <= 60 ? 0.0 : 1e-3; }},
      {"jumps", [](int64_t t) { return t / 7 % 2 == 0 ? 1e-3 : 1e-2; }},
      {"changes sign", [](int64_t t) { return t % 5 == 0 ? -1e-3 : 1e-3; }},
  };
}

// One element after `gap` steps without a gradient, in double precision.
struct Element {
  double w;
  double m;
  double v;
};

Element Decay(Element e, const std::vector<float>& alphas, float beta1, float beta2, float epsilon) {
  for (float alpha : alphas) {
    e.m *= beta1;
    e.v *= beta2;
    if (e.m != 0.0) e.w -= alpha * e.m / (std::sqrt(e.v) + epsilon);
  }
  return e;
}

// Weights start at 0, so the relative error of a weight is that of the catch-up: the rounding of a root, a
// quotient and a polynomial in float.
void CheckGaps(float beta1, float beta2, const std::vector<int64_t>& gaps, double tolerance) {
  // s / epsilon from 1e-4 to 1e8, both signs of m, and m and v of elements that were never touched.
  std::vector<float> m;
  std::vector<float> v;
  std::vector<float> epsilons = {1e-8f, 1e-3f, 1.0f};
  for (double s : {1e-8, 1e-4, 1e-2, 1.0, 1e2}) {
    for (double ratio : {3.0, -0.1}) {
      m.push_back(static_cast<float>(ratio * s));
      v.push_back(static_cast<float>(s * s));
    }
  }
  m.push_back(0.0f);
  v.push_back(0.0f);
  const int64_t dim = static_cast<int64_t>(m.size());
  InlineExecutor executor;
  for (const Schedule& schedule : Schedules()) {
    for (float epsilon : epsilons) {
      for (int64_t gap : gaps) {
        const auto hyper = [&](int64_t t) {
          return std::vector<float>{static_cast<float>(schedule.rate(t)), beta1, beta2, epsilon};
        };
        TrainedRows rows("adam", 1, dim, hyper(1));
        rows.Step(executor, hyper(1), {}, {});
        rows.CatchUp(executor, {0});
        for (int64_t c = 0; c < dim; ++c) {
          rows.store().weights(0)[c] = 0.0f;
          rows.store().slot(0, 0)[c] = m[static_cast<size_t>(c)];
          rows.store().slot(0, 1)[c] = v[static_cast<size_t>(c)];
        }
        std::vector<float> alphas;
        double largest = 0.0;
        for (int64_t t = 2; t < 2 + gap; ++t) {
          alphas.push_back(hyper(t)[0]);
          largest = std::max(largest, std::fabs(static_cast<double>(alphas.back())));
          rows.Step(executor, hyper(t), {}, {});
        }
        ASSERT_TRUE(rows.status().ok()) << rows.status().message();
        rows.CatchUp(executor, {0});
        for (size_t c = 0; c < m.size(); ++c) {
          const Element expected = Decay({0.0, m[c], v[c]}, alphas, beta1, beta2, epsilon);
          const std::string where = schedule.name + ", gap " + std::to_string(gap) + ", epsilon " +
                                    std::to_string(epsilon) + ", m " + std::to_string(m[c]);
          // The steps beyond the horizon of the series.
          const double left_out = 2e-11 * largest * std::fabs(m[c]) / (std::sqrt(v[c]) + epsilon);
          const float* record = rows.store().weights(0) + c;
          EXPECT_NEAR(record[0], expected.w, tolerance * std::fabs(expected.w) + left_out) << where;
          EXPECT_NEAR(record[dim], expected.m, 3e-7 * std::fabs(expected.m) + 1e-36) << where;
          EXPECT_NEAR(record[2 * dim], expected.v, 3e-7 * expected.v + 1e-36) << where;
        }
      }
    }
  }
}

TEST(ExactAdamGap, UsualBetas) { CheckGaps(0.9f, 0.999f, {1, 2, 10, 190, 2000}, 6e-7); }
TEST(ExactAdamGap, LongMemory) { CheckGaps(0.95f, 0.9999f, {1, 10, 190, 2000}, 6e-7); }
TEST(ExactAdamGap, NoMomentum) { CheckGaps(0.0f, 0.999f, {1, 190}, 6e-7); }
TEST(ExactAdamGap, ShorterSecondMemoryTakesEightTerms) { CheckGaps(0.9f, 0.99f, {1, 10, 190, 2000}, 6e-7); }
// With beta2 this small, terms of long lags have larger errors, which matter if the first rates are zero.
TEST(ExactAdamGap, TransformerBetas) { CheckGaps(0.9f, 0.98f, {1, 10, 190, 2000}, 6e-6); }
TEST(ExactAdamGap, LongFirstMemory) { CheckGaps(0.99f, 0.999f, {1, 190, 2000}, 6e-7); }
TEST(ExactAdamGap, StepByStepWithoutASeries) { CheckGaps(0.9f, 0.95f, {1, 10, 190, 2000}, 3e-7); }
TEST(ExactAdamGap, StepByStepIfMomentsDecayAlike) { CheckGaps(0.9f, 0.81f, {1, 10, 190, 700}, 3e-7); }
TEST(ExactAdamGap, StepByStepIfTheSecondMomentDecaysFaster) { CheckGaps(0.95f, 0.5f, {1, 10, 190}, 3e-7); }
TEST(ExactAdamGap, StepByStepIfTheSecondMomentIsForgotten) { CheckGaps(0.9f, 0.0f, {1, 10, 190}, 3e-7); }
TEST(ExactAdamGap, SecondMomentThatNeverChanges) { CheckGaps(0.9f, 1.0f, {1, 10, 190}, 6e-7); }

}  // namespace
}  // namespace sok
