// Keras' Nadam, whose moments decay in every step for every row, against its dense form.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

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

}  // namespace
}  // namespace sok
