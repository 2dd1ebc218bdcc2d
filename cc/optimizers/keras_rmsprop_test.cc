// Keras' RMSprop, whose averages decay in every step for every row: changes of rho, constant gradients,
// overflow.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

// The dense form in double precision: every step updates all slots; only touched rows' weights move.
class DenseRmsprop {
 public:
  DenseRmsprop(int64_t rows, int64_t dim, bool centered)
      : w(rows * dim), rms(rows * dim), mg(rows * dim), dim_(dim), centered_(centered) {}

  void Step(const std::vector<float>& hyper, const RandomStep& step) {
    const double rho = hyper[1];
    for (double& value : rms) value *= rho;
    for (double& value : mg) value *= rho;
    for (size_t i = 0; i < step.grads.size(); ++i) {
      const double g = step.grads[i];
      const size_t at = static_cast<size_t>(step.rows[i / dim_] * dim_ + i % dim_);
      rms[at] += (1 - rho) * g * g;
      mg[at] += (1 - rho) * g;
      const double root = std::sqrt(centered_ ? rms[at] - mg[at] * mg[at] : rms[at]);
      w[at] -= hyper[0] * g / (root + hyper[2]);
    }
  }

  std::vector<double> w, rms, mg;  // [rows, dim]

 private:
  size_t dim_;
  bool centered_;
};

void CheckWithChangingRho(const char* name, int64_t dim) {
  constexpr int64_t kRows = 20;
  ThreadPool pool(2, /*min_block_ns=*/0);
  std::vector<float> hyper = {1e-2f, 0.9f, 1e-3f};
  TrainedRows rows(name, kRows, dim, hyper);
  const bool centered = rows.store().num_slots() == 2;
  DenseRmsprop truth(kRows, dim, centered);
  for (int64_t i = 0; i < kRows * dim; ++i) {
    truth.w[static_cast<size_t>(i)] = rows.store().weights(i / dim)[i % dim];
  }
  std::mt19937_64 random(9);
  for (int t = 0; t < 200; ++t) {
    hyper[1] = t / 50 % 2 == 0 ? 0.9f : 0.95f;
    // Rows below 10 are touched often, the others rarely.
    RandomStep step = MakeRandomStep(kRows / 2, dim, 0.5, &random);
    const RandomStep seldom = MakeRandomStep(kRows / 2, dim, 0.02, &random);
    for (int64_t row : seldom.rows) step.rows.push_back(row + kRows / 2);
    step.grads.insert(step.grads.end(), seldom.grads.begin(), seldom.grads.end());
    rows.Step(pool, hyper, step.rows, step.grads);
    truth.Step(hyper, step);
    if (t % 9 == 0) rows.CatchUp(pool, MakeRandomStep(kRows, dim, 0.3, &random).rows);
  }
  ASSERT_TRUE(rows.status().ok()) << rows.status().message();
  rows.CatchUp(pool, rows.AllRows());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t c = 0; c < dim; ++c) {
      const size_t at = static_cast<size_t>(row * dim + c);
      ASSERT_NEAR(rows.store().weights(row)[c], truth.w[at], 3e-5 * (1 + std::fabs(truth.w[at])));
      ASSERT_NEAR(rows.store().slot(row, 0)[c], truth.rms[at], 2e-6 * truth.rms[at]);
      if (centered) {
        ASSERT_NEAR(rows.store().slot(row, 1)[c], truth.mg[at], 2e-6 * (std::fabs(truth.mg[at]) + 0.1));
      }
    }
  }
}

TEST(KerasRmsprop, RhoMayChangeBetweenSteps) {
  CheckWithChangingRho("keras_rmsprop", 5);
  CheckWithChangingRho("keras_rmsprop_centered", 5);
}

// After many equal gradients the variance is zero up to rounding, and may be negative. The root must not
// become NaN.
TEST(KerasRmsprop, ConstantGradientStaysFinite) {
  InlineExecutor executor;
  for (float g : {0.1f, 1.0f, 3.7f, 1e3f}) {
    const std::vector<float> hyper = {1e-3f, 0.5f, 1e-7f};
    TrainedRows rows("keras_rmsprop_centered", 1, 1, hyper);
    for (int t = 0; t < 200; ++t) rows.Step(executor, hyper, {0}, {g});
    for (float value : rows.Record(0)) EXPECT_TRUE(std::isfinite(value)) << g;
  }
}

// A mean that has overflowed stays infinite, however many steps the row misses.
TEST(KerasRmsprop, AnOverflowStaysAnOverflow) {
  InlineExecutor executor;
  const std::vector<float> hyper = {1e-2f, 0.9f, 1e-7f};
  for (const int missed : {0, 1, 100, 3000}) {
    TrainedRows rows("keras_rmsprop", 1, 1, hyper);
    rows.Step(executor, hyper, {0}, {1e30f});
    const float weight = rows.Record(0)[0];
    for (int t = 0; t < missed; ++t) rows.Step(executor, hyper, {}, {});
    if (missed % 2 == 0) rows.CatchUp(executor, {0});
    rows.Step(executor, hyper, {0}, {1.0f});
    EXPECT_EQ(rows.Record(0), std::vector<float>({weight, std::numeric_limits<float>::infinity()})) << missed;
  }
}

}  // namespace
}  // namespace sok
