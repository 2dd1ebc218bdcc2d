// Keras' RMSprop, whose averages decay in every step for every row: changes of rho, constant gradients,
// overflow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"

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

// The hyper-parameters of successive steps, with the schedule of Keras' defaults.
class Schedule {
 public:
  explicit Schedule(float beta1) : beta1_(beta1) {}

  std::vector<float> Next(float beta2) {
    ++step_;
    product_ *= Momentum(step_);
    const double next_product = product_ * Momentum(step_ + 1);
    return {0.01f,
            beta1_,
            beta2,
            1e-3f,
            static_cast<float>((1 - Momentum(step_)) / (1 - product_)),
            static_cast<float>(Momentum(step_ + 1) / (1 - next_product)),
            static_cast<float>(1 - std::pow(static_cast<double>(beta2), step_))};
  }

 private:
  double Momentum(int step) const { return beta1_ * (1 - 0.5 * std::pow(0.96, 0.004 * step)); }

  float beta1_;
  int step_ = 0;
  double product_ = 1.0;
};

// The dense form in double precision: every step updates all slots; only touched rows' weights move.
struct DenseNadam {
  explicit DenseNadam(TrainedRows* rows)
      : dim(rows->store().dim()), w(rows->size() * dim), m(rows->size() * dim), v(rows->size() * dim) {
    for (int64_t i = 0; i < static_cast<int64_t>(w.size()); ++i) {
      w[static_cast<size_t>(i)] = rows->store().weights(i / dim)[i % dim];
    }
  }

  void Step(const std::vector<float>& hyper, const RandomStep& step) {
    for (double& value : m) value *= hyper[1];
    for (double& value : v) value *= hyper[2];
    for (size_t i = 0; i < step.grads.size(); ++i) {
      const double g = step.grads[i];
      const size_t at = static_cast<size_t>(step.rows[i / dim] * dim + i % dim);
      m[at] += (1.0 - hyper[1]) * g;
      v[at] += (1.0 - hyper[2]) * g * g;
      const double direction = hyper[4] * g + hyper[5] * m[at];
      w[at] -= hyper[0] * direction / (std::sqrt(v[at] / hyper[6]) + hyper[3]);
    }
  }

  size_t dim;
  std::vector<double> w, m, v;  // [rows, dim]
};

// Touches rows of the lower half often, the others rarely, and in some steps no rows.
RandomStep SkewedStep(int64_t rows, int64_t dim, std::mt19937_64* random) {
  if (std::bernoulli_distribution(0.1)(*random)) return RandomStep();
  RandomStep step = MakeRandomStep(rows / 2, dim, 0.5, random);
  const RandomStep seldom = MakeRandomStep(rows / 2, dim, 0.02, random);
  for (int64_t row : seldom.rows) step.rows.push_back(row + rows / 2);
  step.grads.insert(step.grads.end(), seldom.grads.begin(), seldom.grads.end());
  return step;
}

void Check(int64_t dim, int threads, bool change_beta2) {
  constexpr int64_t kRows = 20;
  ThreadPool pool(threads, /*min_block_ns=*/0);
  TrainedRows rows("nadam", kRows, dim, Schedule(0.9f).Next(0.95f));
  DenseNadam truth(&rows);
  Schedule schedule(0.9f);
  std::mt19937_64 random(9);
  for (int t = 0; t < 200; ++t) {
    const std::vector<float> hyper = schedule.Next(change_beta2 && t / 50 % 2 == 1 ? 0.98f : 0.95f);
    const RandomStep step = SkewedStep(kRows, dim, &random);
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
      ASSERT_NEAR(rows.store().slot(row, 0)[c], truth.m[at], 3e-6 * (std::fabs(truth.m[at]) + 0.1));
      ASSERT_NEAR(rows.store().slot(row, 1)[c], truth.v[at], 3e-6 * truth.v[at]);
    }
  }
}

TEST(Nadam, FollowsTheDenseFormForEveryDim) {
  for (int64_t dim : {1, 2, 3, 7, 16, 63, 64, 129, 1025}) Check(dim, 2, false);
}

TEST(Nadam, FollowsTheDenseFormOnAnyNumberOfThreads) {
  for (int threads : {1, 3, 4}) Check(19, threads, false);
}

TEST(Nadam, ABetaMayChangeBetweenSteps) { Check(5, 2, true); }

// A row without a gradient keeps its weights, bit for bit.
TEST(Nadam, WeightsOfUntouchedRowsStay) {
  InlineExecutor executor;
  Schedule schedule(0.9f);
  TrainedRows rows("nadam", 2, 4, schedule.Next(0.999f));
  rows.Step(executor, schedule.Next(0.999f), {0, 1}, std::vector<float>(8, 0.5f));
  const std::vector<float> before = rows.Record(1);
  for (int t = 0; t < 30; ++t) {
    rows.Step(executor, schedule.Next(0.999f), {0}, std::vector<float>(4, 0.5f));
  }
  rows.CatchUp(executor, {1});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(rows.Record(1)[i], before[i]);
  for (size_t i = 4; i < 12; ++i) EXPECT_LT(rows.Record(1)[i], before[i]);
}

// A second moment that has overflowed stays infinite, and its element does not move, however many steps the
// row misses.
TEST(Nadam, AnOverflowStaysAnOverflow) {
  InlineExecutor executor;
  for (const int missed : {0, 1, 100, 3000}) {
    Schedule schedule(0.5f);
    TrainedRows rows("nadam", 1, 2, schedule.Next(0.9f));
    rows.Step(executor, schedule.Next(0.9f), {0}, {1e30f, 1.0f});
    const float weight = rows.Record(0)[0];
    for (int t = 0; t < missed; ++t) rows.Step(executor, schedule.Next(0.9f), {}, {});
    if (missed % 2 == 0) rows.CatchUp(executor, {0});
    rows.Step(executor, schedule.Next(0.9f), {0}, {1.0f, 1.0f});
    EXPECT_EQ(rows.Record(0)[0], weight) << missed;
    EXPECT_EQ(rows.Record(0)[4], std::numeric_limits<float>::infinity()) << missed;
    EXPECT_TRUE(std::isfinite(rows.Record(0)[1])) << missed;
  }
}

constexpr int64_t kDim = 5;
constexpr float kRate = 0.25f;
constexpr float kInitial = 0.5f;

std::vector<float> Hyper(float period) { return {0.1f, kInitial, kRate, period}; }

float Accumulator(const TrainedRows& rows, int64_t row) { return rows.Record(row)[kDim]; }
float Decays(const TrainedRows& rows, int64_t row) { return rows.Record(row)[2 * kDim]; }

void Step(TrainedRows* rows, float period, int64_t row, float gradient) {
  InlineExecutor executor;
  rows->Step(executor, Hyper(period), {row}, std::vector<float>(kDim, gradient));
  ASSERT_TRUE(rows->status().ok()) << rows->status().message();
}

TEST(AdagradDecay, DecaysOnceInAPeriod) {
  TrainedRows rows("adagrad_decay", 2, kDim, Hyper(0));
  Step(&rows, 0, 0, 4.0f);
  EXPECT_EQ(Accumulator(rows, 0), 16.5f);
  Step(&rows, 1, 0, 1.0f);
  EXPECT_EQ(Accumulator(rows, 0), 16.5f * kRate + 1.0f);
  Step(&rows, 1, 0, 1.0f);
  EXPECT_EQ(Accumulator(rows, 0), 16.5f * kRate + 2.0f);
  EXPECT_EQ(Decays(rows, 0), 1.0f);
}

TEST(AdagradDecay, NeverFallsBelowItsInitialValue) {
  TrainedRows rows("adagrad_decay", 2, kDim, Hyper(0));
  Step(&rows, 1, 0, 0.0f);
  EXPECT_EQ(Accumulator(rows, 0), kInitial);
  EXPECT_EQ(Decays(rows, 0), 1.0f);
}

// A row that was not touched for three periods decays in each of its next three steps.
TEST(AdagradDecay, MissedPeriodsAreCaughtUpStepByStep) {
  TrainedRows rows("adagrad_decay", 2, kDim, Hyper(0));
  Step(&rows, 0, 0, 32.0f);
  float expected = 1024.5f;
  for (int step = 0; step < 5; ++step) {
    Step(&rows, 3, 0, 0.0f);
    if (step < 3) expected *= kRate;
    EXPECT_EQ(Accumulator(rows, 0), expected) << step;
  }
  EXPECT_EQ(Decays(rows, 0), 3.0f);
  EXPECT_EQ(Decays(rows, 1), 0.0f);
}

TEST(AdagradDecay, CountsExactlyUpToTwoToThe24) {
  TrainedRows rows("adagrad_decay", 1, kDim, Hyper(0));
  const float last = 16777216.0f;
  rows.store().slot(0, 1)[0] = last - 1.0f;
  Step(&rows, last, 0, 0.0f);
  EXPECT_EQ(Decays(rows, 0), last);
  Step(&rows, last, 0, 2.0f);
  EXPECT_EQ(Accumulator(rows, 0), kInitial + 4.0f);
}

TEST(AdagradDecay, FollowsTheFormulasOverManyPeriods) {
  constexpr int64_t kRows = 40;
  ThreadPool pool(3, /*min_block_ns=*/0);
  std::mt19937_64 random(11);
  TrainedRows rows("adagrad_decay", kRows, kDim, Hyper(0));
  std::vector<std::vector<double>> w, a(kRows, std::vector<double>(kDim, kInitial));
  for (const auto& record : rows.Records()) w.emplace_back(record.begin(), record.begin() + kDim);
  std::vector<int> decays(kRows, 0);
  for (int t = 0; t < 60; ++t) {
    const int period = t / 4;
    const RandomStep step = MakeRandomStep(kRows, kDim, 0.3, &random);
    rows.Step(pool, Hyper(static_cast<float>(period)), step.rows, step.grads);
    for (size_t i = 0; i < step.rows.size(); ++i) {
      const auto row = static_cast<size_t>(step.rows[i]);
      const bool decay = period > decays[row];
      if (decay) ++decays[row];
      for (size_t c = 0; c < kDim; ++c) {
        const double g = step.grads[i * kDim + c];
        if (decay) a[row][c] = std::max<double>(kRate * a[row][c], kInitial);
        a[row][c] += g * g;
        w[row][c] -= 0.1f * g / std::sqrt(a[row][c]);
      }
    }
  }
  ASSERT_TRUE(rows.status().ok()) << rows.status().message();
  for (size_t row = 0; row < kRows; ++row) {
    const std::vector<float> record = rows.Record(static_cast<int64_t>(row));
    EXPECT_EQ(record[2 * kDim], static_cast<float>(decays[row]));
    for (size_t c = 0; c < kDim; ++c) {
      EXPECT_NEAR(record[c], w[row][c], 1e-5 * (1.0 + std::fabs(w[row][c])));
      EXPECT_NEAR(record[kDim + c], a[row][c], 1e-5 * (1.0 + a[row][c]));
    }
  }
}

}  // namespace

}  // namespace sok
