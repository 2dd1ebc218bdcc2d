// Exact Adam between steps: reads, new rows, changed hyper-parameters, long histories, checkpoints.
#include "cc/cpu/optimizers/exact_adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

using Hyper = std::vector<float>;
const Hyper kHyper = {1e-2f, 0.9f, 0.999f, 1e-8f};
constexpr int64_t kDim = 6;

std::vector<float> Gradient(float scale) {
  std::vector<float> g;
  for (int64_t c = 0; c < kDim; ++c) g.push_back(scale * (static_cast<float>(c) - 2.3f));
  return g;
}

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance * (std::fabs(expected[i]) + 1e-6)) << i;
  }
}

TEST(ExactAdamState, ReadsBetweenStepsChangeOnlyRounding) {
  InlineExecutor executor;
  TrainedRows read("adam", 1, kDim, kHyper);
  TrainedRows unread("adam", 1, kDim, kHyper);
  for (int t = 0; t < 500; ++t) {
    const bool touched = t % 83 == 0;
    const std::vector<int64_t> rows = touched ? std::vector<int64_t>{0} : std::vector<int64_t>{};
    const std::vector<float> grads = touched ? Gradient(1.0f) : std::vector<float>{};
    read.Step(executor, kHyper, rows, grads);
    unread.Step(executor, kHyper, rows, grads);
    if (t % 7 == 2 || t % 31 == 5) read.CatchUp(executor, {0});
  }
  read.CatchUp(executor, {0});
  unread.CatchUp(executor, {0});
  ExpectNear(read.Record(0), unread.Record(0), 3e-6);
}

TEST(ExactAdamState, ASecondReadChangesNothing) {
  InlineExecutor executor;
  TrainedRows rows("adam", 2, kDim, kHyper);
  rows.CatchUp(executor, {0, 1});  // before any step
  rows.Step(executor, kHyper, {1}, Gradient(0.5f));
  for (int t = 0; t < 9; ++t) rows.Step(executor, kHyper, {}, {});
  rows.CatchUp(executor, {1});
  const auto once = rows.Records();
  rows.CatchUp(executor, {1, 0});
  EXPECT_EQ(rows.Records(), once);
}

TEST(ExactAdamState, UntouchedRowsDoNotMove) {
  InlineExecutor executor;
  for (float beta2 : {0.999f, 0.5f, 0.0f}) {
    const Hyper hyper = {1e-2f, 0.9f, beta2, 1e-8f};
    TrainedRows rows("adam", 2, kDim, hyper);
    const std::vector<float> before = rows.Record(1);
    for (int t = 0; t < 50; ++t) rows.Step(executor, hyper, {0}, Gradient(1.0f));
    rows.CatchUp(executor, {1});
    EXPECT_EQ(rows.Record(1), before);
    for (float value : rows.Record(0)) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(ExactAdamState, WithEpsilonZeroRowsWithoutGradientsBecomeNan) {
  InlineExecutor executor;
  for (float beta1 : {0.9f, 0.0f}) {
    for (float beta2 : {0.999f, 0.98f, 0.5f, 0.0f}) {
      const Hyper hyper = {1e-2f, beta1, beta2, 0.0f};
      TrainedRows rows("adam", 2, kDim, hyper);
      for (int t = 0; t < 50; ++t) rows.Step(executor, hyper, {0}, Gradient(1.0f));
      rows.CatchUp(executor, {1});
      for (int64_t c = 0; c < kDim; ++c) EXPECT_TRUE(std::isnan(rows.Record(1)[c])) << beta1 << " " << beta2;
      for (float value : rows.Record(0)) EXPECT_TRUE(std::isfinite(value)) << beta1 << " " << beta2;
    }
  }
}

TEST(ExactAdamState, NewRowsStartAtTheCurrentStep) {
  InlineExecutor executor;
  TrainedRows rows("adam", 2, kDim, kHyper);
  rows.Step(executor, kHyper, {0, 1}, std::vector<float>(2 * kDim, 1.0f));
  for (int t = 0; t < 20; ++t) rows.Step(executor, kHyper, {}, {});
  // Row 1 gets a new key, with moments such as a checkpoint may have.
  rows.optimizer().OnNewRow(1);
  const std::vector<float> given = rows.Record(1);
  rows.CatchUp(executor, {1});
  EXPECT_EQ(rows.Record(1), given);
}

// When a hyper-parameter changes, rows first catch up the steps with the old value.
TEST(ExactAdamState, HyperParametersMayChangeBetweenSteps) {
  InlineExecutor executor;
  TrainedRows rows("adam", 3, kDim, kHyper);
  DenseAdam<double> truth(3, kDim);
  for (int64_t i = 0; i < 3 * kDim; ++i) {
    truth.w[static_cast<size_t>(i)] = rows.store().weights(i / kDim)[i % kDim];
  }
  const std::vector<Hyper> phases = {kHyper,
                                     {1e-2f, 0.8f, 0.999f, 1e-8f},
                                     {1e-2f, 0.8f, 0.99f, 1e-8f},
                                     {1e-2f, 0.8f, 0.9f, 1e-8f},
                                     {1e-2f, 0.8f, 0.9f, 0.5f},
                                     kHyper};
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    for (int t = 0; t < 13; ++t) {
      std::vector<int64_t> touched;
      std::vector<float> grads;
      for (int64_t row = 0; row < 3; ++row) {
        if (t != 4 * row) continue;
        touched.push_back(row);
        const std::vector<float> g = Gradient(static_cast<float>(phase + 1));
        grads.insert(grads.end(), g.begin(), g.end());
      }
      const Hyper& h = phases[phase];
      rows.Step(executor, h, touched, grads);
      truth.Step(h[0], h[1], h[2], h[3], touched, grads);
    }
  }
  rows.CatchUp(executor, rows.AllRows());
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t c = 0; c < kDim; ++c) {
      EXPECT_NEAR(rows.store().weights(row)[c], truth.w[static_cast<size_t>(row * kDim + c)], 1e-5);
    }
  }
}

// A history that has reached its limit is dropped; rows must not lose the steps that they have missed.
TEST(ExactAdamState, ARestartOfTheHistoryLosesNoSteps) {
  InlineExecutor executor;
  const auto train = [&](int64_t steps_before) {
    TrainedRows rows("adam", 2, kDim, kHyper);
    for (int64_t t = 0; t < steps_before; ++t) rows.Step(executor, kHyper, {}, {});
    rows.Step(executor, kHyper, {0, 1}, std::vector<float>(2 * kDim, 0.7f));
    for (int t = 0; t < 60; ++t) rows.Step(executor, kHyper, {}, {});
    rows.Step(executor, kHyper, {1}, Gradient(1.0f));
    rows.CatchUp(executor, {0, 1});
    EXPECT_TRUE(rows.status().ok()) << rows.status().message();
    EXPECT_EQ(rows.optimizer().steps(), steps_before + 62);
    return rows.Records();
  };
  const auto without = train(0);
  const auto with = train(AdamHistory::kMaxSteps - 20);
  for (size_t row = 0; row < 2; ++row) ExpectNear(with[row], without[row], 1e-6);
}

// A checkpoint of caught-up rows and the state. Training continues from it with the same bits as without it.
TEST(ExactAdamState, ContinuesFromACheckpointBitForBit) {
  InlineExecutor executor;
  TrainedRows rows("adam", 4, kDim, kHyper);
  std::mt19937_64 random(3);
  for (int t = 0; t < 40; ++t) {
    const RandomStep step = MakeRandomStep(4, kDim, 0.2, &random);
    rows.Step(executor, kHyper, step.rows, step.grads);
  }
  rows.CatchUp(executor, rows.AllRows());

  TrainedRows restored("adam", 4, kDim, kHyper);
  for (int t = 0; t < 7; ++t)
    restored.Step(executor, kHyper, {2}, Gradient(3.0f));  // its past must not matter
  restored.optimizer().RestoreSteps(rows.optimizer().steps());
  EXPECT_EQ(restored.optimizer().steps(), 40);
  for (int64_t row = 0; row < 4; ++row) {
    const std::vector<float> record = rows.Record(row);
    std::copy(record.begin(), record.end(), restored.store().weights(row));
  }
  for (int t = 0; t < 40; ++t) {
    const RandomStep step = MakeRandomStep(4, kDim, 0.2, &random);
    rows.Step(executor, kHyper, step.rows, step.grads);
    restored.Step(executor, kHyper, step.rows, step.grads);
  }
  rows.CatchUp(executor, rows.AllRows());
  restored.CatchUp(executor, rows.AllRows());
  EXPECT_EQ(restored.Records(), rows.Records());
}

// As for a delta, rows are saved as they are in memory, with the steps that they may have missed.
TEST(ExactAdamState, ContinuesFromRowsThatLagBitForBit) {
  InlineExecutor executor;
  for (const float beta2 : {0.999f, 0.5f, 0.0f}) {  // by series of 4 and 8 terms, and step by step
    const Hyper hyper = {1e-2f, 0.9f, beta2, 1e-8f};
    TrainedRows rows("adam", 6, kDim, hyper);
    std::mt19937_64 random(4);
    const auto train = [&](TrainedRows* trained, int steps, std::mt19937_64* numbers) {
      for (int t = 0; t < steps; ++t) {
        const RandomStep step = MakeRandomStep(6, kDim, 0.2, numbers);
        trained->Step(executor, hyper, step.rows, step.grads);
      }
    };
    train(&rows, 10, &random);
    rows.CatchUp(executor, rows.AllRows());
    rows.optimizer().ForgetPastSteps();
    train(&rows, 15, &random);

    const PastSteps past = rows.optimizer().past_steps();
    EXPECT_EQ(past.first_step, 10);
    EXPECT_EQ(past.alphas, std::vector<float>(15, 1e-2f));
    TrainedRows restored("adam", 6, kDim, hyper);
    restored.optimizer().RestoreSteps(rows.optimizer().steps());
    ASSERT_TRUE(restored.optimizer().RestorePastSteps(past).ok());
    for (int64_t row = 0; row < 6; ++row) {
      const std::vector<float> record = rows.Record(row);
      std::copy(record.begin(), record.end(), restored.store().weights(row));
      restored.optimizer().SetLastCurrent(row, rows.optimizer().last_current(row));
      EXPECT_EQ(restored.optimizer().last_current(row), rows.optimizer().last_current(row));
    }
    std::mt19937_64 again = random;
    train(&rows, 20, &random);
    train(&restored, 20, &again);
    EXPECT_EQ(restored.Records(), rows.Records());
    rows.CatchUp(executor, rows.AllRows());
    restored.CatchUp(executor, rows.AllRows());
    EXPECT_EQ(restored.Records(), rows.Records());
  }
}

TEST(ExactAdamState, InvalidPastStepsAreRefused) {
  InlineExecutor executor;
  TrainedRows rows("adam", 1, kDim, kHyper);
  for (int t = 0; t < 5; ++t) rows.Step(executor, kHyper, {0}, Gradient(1.0f));
  const PastSteps good = rows.optimizer().past_steps();
  for (int fault = 0; fault < 4; ++fault) {
    PastSteps bad = good;
    if (fault == 0) bad.first_step = 1;
    if (fault == 1) bad.alphas.pop_back();
    if (fault == 2) bad.beta1 = 1.5f;
    if (fault == 3) bad.alphas[2] = std::nanf("");
    EXPECT_EQ(rows.optimizer().RestorePastSteps(bad).code(), StatusCode::kInvalidArgument) << fault;
  }
  EXPECT_TRUE(rows.optimizer().RestorePastSteps(good).ok());
  EXPECT_EQ(MakeOptimizer("sgd").value()->RestorePastSteps(good).code(), StatusCode::kInvalidArgument);
}

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
