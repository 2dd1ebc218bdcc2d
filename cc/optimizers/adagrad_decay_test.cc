// AdagradDecay over periods with and without steps on a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/thread_pool.h"
#include "cc/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

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
