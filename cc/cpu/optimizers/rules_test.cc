// The arithmetic of each rule beside its own Reference, on any number of threads and with any vectors; and
// what is particular to single rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/testing/vector_levels.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"
#include "cc/optimizers/testing/rule_cases.h"

namespace sok {
namespace {

// All rows in double precision, including those without a gradient, trained by the rule's own Reference.
class ReferenceTable {
 public:
  ReferenceTable(const RuleInfo& rule, const TrainedRows& rows, const std::vector<SlotSpec>& slots)
      : rule_(rule), dim_(rows.store().dim()) {
    for (const std::vector<float>& record : rows.Records()) {
      Row& row = rows_.emplace_back();
      row.w.assign(record.begin(), record.begin() + dim_);
      for (const SlotSpec& slot : slots) row.slots.emplace_back(static_cast<size_t>(slot.width), slot.fill);
    }
  }

  void Step(const std::vector<float>& hyper, const RandomStep& step) {
    const std::vector<double> values(hyper.begin(), hyper.end());
    std::vector<bool> touched(rows_.size(), false);
    for (size_t i = 0; i < step.rows.size(); ++i) {
      const auto g = step.grads.begin() + static_cast<int64_t>(i) * dim_;
      Apply(values, std::vector<double>(g, g + dim_), &rows_[static_cast<size_t>(step.rows[i])]);
      touched[static_cast<size_t>(step.rows[i])] = true;
    }
    if (rule_.untouched == UntouchedRows::kStay) return;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (touched[i]) continue;
      const std::vector<double> before = rows_[i].w;
      Apply(values, std::vector<double>(static_cast<size_t>(dim_), 0.0), &rows_[i]);
      if (rule_.untouched == UntouchedRows::kSlotsDecay) rows_[i].w = before;
    }
  }

  // As TrainedRows::Record.
  std::vector<double> Record(int64_t row) const {
    std::vector<double> record = rows_[static_cast<size_t>(row)].w;
    for (const auto& slot : rows_[static_cast<size_t>(row)].slots) {
      record.insert(record.end(), slot.begin(), slot.end());
    }
    return record;
  }

 private:
  struct Row {
    std::vector<double> w;
    std::vector<std::vector<double>> slots;
  };

  void Apply(const std::vector<double>& hyper, const std::vector<double>& g, Row* row) const {
    std::vector<double*> slots;
    for (std::vector<double>& slot : row->slots) slots.push_back(slot.data());
    rule_.reference(hyper.data(), ReferenceRow{dim_, g.data(), row->w.data(), slots.data()});
  }

  const RuleInfo& rule_;
  int64_t dim_;
  std::vector<Row> rows_;
};

void ExpectNearReference(const std::vector<float>& actual, const std::vector<double>& expected, int64_t dim,
                         int64_t row) {
  ASSERT_EQ(actual.size(), expected.size());
  // Every step rounds a few times. FTRL's linear slot is a sum of numbers larger than itself.
  double largest = 1.0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t k = 0; k < actual.size(); ++k) {
    ASSERT_NEAR(actual[k], expected[k], 1e-5 * largest) << "dim " << dim << " row " << row << " float " << k;
  }
}

// Takes `steps` steps, of which hyper_at(t) has the hyper-parameters and step_at(t, random) the gradients.
// Some rows are read in between.
template <typename HyperAt, typename StepAt>
void TrainBesideReference(int threads, int steps, const HyperAt& hyper_at, const StepAt& step_at,
                          TrainedRows* rows) {
  ASSERT_TRUE(rows->status().ok()) << rows->status().message();
  const int64_t dim = rows->store().dim();
  const Optimizer& optimizer = rows->optimizer();
  ReferenceTable expected(optimizer.rule(), *rows, optimizer.Slots(dim, hyper_at(0)));
  ThreadPool pool(threads, /*min_block_ns=*/0);
  std::mt19937_64 random(static_cast<uint64_t>(dim));
  for (int t = 0; t < steps; ++t) {
    const std::vector<float> hyper = hyper_at(t);
    const RandomStep step = step_at(t, &random);
    rows->Step(pool, hyper, step.rows, step.grads);
    expected.Step(hyper, step);
    if (t % 5 == 2) rows->CatchUp(pool, MakeRandomStep(rows->size(), dim, 0.3, &random).rows);
  }
  rows->CatchUp(pool, rows->AllRows());
  ASSERT_TRUE(rows->status().ok()) << rows->status().message();
  EXPECT_EQ(optimizer.steps(), steps);
  for (int64_t row = 0; row < rows->size(); ++row) {
    ExpectNearReference(rows->Record(row), expected.Record(row), dim, row);
  }
}

// Touches rows of the lower half often, the others rarely, and in some steps no rows.
RandomStep SkewedStep(int64_t rows, int64_t dim, std::mt19937_64* random) {
  if (std::bernoulli_distribution(0.1)(*random)) return RandomStep();
  RandomStep step = MakeRandomStep(rows / 2, dim, 0.5, random);
  const RandomStep seldom = MakeRandomStep(rows / 2, dim, 0.02, random);
  for (int64_t row : seldom.rows) step.rows.push_back(row + rows / 2);
  step.grads.insert(step.grads.end(), seldom.grads.begin(), seldom.grads.end());
  return step;
}

template <typename HyperAt>
void TrainSkewedBesideReference(const std::string& name, const HyperAt& hyper_at) {
  constexpr int64_t kRows = 20;
  constexpr int64_t kDim = 5;
  TrainedRows rows(name, kRows, kDim, hyper_at(0));
  TrainBesideReference(
      2, 200, hyper_at, [](int, std::mt19937_64* random) { return SkewedStep(kRows, kDim, random); }, &rows);
}

TEST(KerasRmsprop, RhoMayChangeBetweenSteps) {
  for (const char* const name : {"keras_rmsprop", "keras_rmsprop_centered"}) {
    TrainSkewedBesideReference(
        name, [](int t) { return std::vector<float>{1e-2f, t / 50 % 2 == 0 ? 0.9f : 0.95f, 1e-3f}; });
  }
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

TEST(Nadam, ABetaMayChangeBetweenSteps) {
  for (const bool changes : {false, true}) {
    std::vector<std::vector<float>> hyper;
    Schedule schedule(0.9f);
    for (int t = 0; t < 200; ++t) hyper.push_back(schedule.Next(changes && t / 50 % 2 == 1 ? 0.98f : 0.95f));
    TrainSkewedBesideReference("nadam", [&](int t) { return hyper[static_cast<size_t>(t)]; });
  }
}

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
  TrainedRows rows("adagrad_decay", 40, kDim, Hyper(0));
  TrainBesideReference(
      3, 60, [](int t) { return Hyper(static_cast<float>(t / 4)); },
      [](int, std::mt19937_64* random) { return MakeRandomStep(40, kDim, 0.3, random); }, &rows);
}

// Every rule.

class RuleReferenceTest : public testing::TestWithParam<RuleCase> {
 protected:
  static constexpr int64_t kRows = 12;

  // Trains at random. The last row never has a gradient; the three before it rarely have one.
  static void Check(int64_t dim, int steps, int threads) {
    TrainedRows rows(GetParam().name, kRows, dim, GetParam().hyper);
    const std::vector<float> last_row = rows.Record(kRows - 1);
    const auto hyper_at = [](int t) {
      std::vector<float> now = GetParam().hyper;
      now[0] *= 1.0f + 0.1f * static_cast<float>(t % 4);
      return now;
    };
    const auto step_at = [&](int t, std::mt19937_64* random) {
      RandomStep step = MakeRandomStep(kRows - 4, dim, t % 7 == 5 ? 0.0 : 0.6, random);
      AddSeldomRow(t, dim, random, &step);
      return step;
    };
    ASSERT_NO_FATAL_FAILURE(TrainBesideReference(threads, steps, hyper_at, step_at, &rows));
    EXPECT_EQ(rows.Record(kRows - 1), last_row) << "a row without any gradient";
  }

 private:
  static void AddSeldomRow(int t, int64_t dim, std::mt19937_64* random, RandomStep* step) {
    if (t % 9 != 1) return;
    step->rows.push_back(kRows - 4 + t / 9 % 3);
    std::normal_distribution<float> normal;
    for (int64_t c = 0; c < dim; ++c) step->grads.push_back(normal(*random));
  }
};

TEST_P(RuleReferenceTest, FollowsTheFormulasForEveryDim) {
  for (int64_t dim : {1, 2, 3, 7, 16, 63, 64, 129, 1025}) Check(dim, 30, 2);
}

TEST_P(RuleReferenceTest, FollowsTheFormulasOverManySteps) { Check(5, 200, 3); }

INSTANTIATE_TEST_SUITE_P(All, RuleReferenceTest, testing::ValuesIn(AllRuleCases()),
                         RuleCaseName<testing::TestParamInfo<RuleCase>>);

std::vector<std::vector<float>> Train(const RuleCase& c, int threads, int64_t dim) {
  constexpr int64_t kRows = 200;
  ThreadPool pool(threads, /*min_block_ns=*/0);
  TrainedRows rows(c.name, kRows, dim, c.hyper);
  std::mt19937_64 random(5);
  for (int t = 0; t < 25; ++t) {
    const RandomStep step = MakeRandomStep(kRows, dim, 0.3, &random);
    rows.Step(pool, c.hyper, step.rows, step.grads);
    if (t % 7 == 3) rows.CatchUp(pool, MakeRandomStep(kRows, dim, 0.5, &random).rows);
  }
  EXPECT_TRUE(rows.status().ok()) << rows.status().message();
  rows.CatchUp(pool, rows.AllRows());
  return rows.Records();
}

class ThreadsTest : public testing::TestWithParam<RuleCase> {};

TEST_P(ThreadsTest, SameBitsOnAnyNumberOfThreads) {
  const auto expected = Train(GetParam(), 1, 19);
  for (int threads = 2; threads <= 4; ++threads)
    EXPECT_EQ(Train(GetParam(), threads, 19), expected) << threads;
}

TEST_P(ThreadsTest, SameBitsWithAnyVectorInstructions) {
  for (const int64_t dim : {1, 7, 16, 19, 32, 64, 128, 130}) {
    std::vector<std::vector<float>> expected;
    for (const VectorLevel level : VectorLevels()) {
      const WithVectorLevel with_level(level);
      const auto trained = Train(GetParam(), 1, dim);
      if (expected.empty()) expected = trained;
      EXPECT_EQ(trained, expected) << "dim " << dim << ", vectors " << static_cast<int>(level);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ThreadsTest, testing::ValuesIn(AllRuleCases()),
                         RuleCaseName<testing::TestParamInfo<RuleCase>>);

// Exact Adam over long random training, compared with dense Adam in double and in single precision.

float Alpha(int t, float beta1, float beta2) {
  // Warm-up over 40 steps, then decay, and from step 201 on ten times the rate; with TensorFlow's bias
  // correction.
  double rate = t <= 40 ? 1e-4 * t : 4e-3 * std::pow(0.99, t - 40);
  if (t > 200) rate *= 10;
  return static_cast<float>(rate * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t)));
}

// The largest error of a weight against `expected` [rows, dim], relative to the expected weight or, for
// weights near zero, to a typical move.
template <typename T>
double Error(TrainedRows& rows, int64_t dim, const std::vector<T>& expected) {
  double worst = 0.0;
  for (int64_t row = 0; row < rows.size(); ++row) {
    for (int64_t c = 0; c < dim; ++c) {
      const double truth = expected[static_cast<size_t>(row * dim + c)];
      worst = std::max(worst, std::fabs(rows.store().weights(row)[c] - truth) / (0.1 + std::fabs(truth)));
    }
  }
  return worst;
}

struct Outcome {
  double to_double;
  double to_float;
};

// 300 steps over rows that are touched with probabilities from 1/2 down to 1/200; some reads in between.
Outcome Train(float beta1, float beta2, float epsilon, int64_t dim, bool read_between) {
  constexpr int64_t kRows = 40;
  ThreadPool pool(2, /*min_block_ns=*/0);
  TrainedRows rows("adam", kRows, dim, std::vector<float>{0.0f, beta1, beta2, epsilon});
  DenseAdam<double> truth(kRows, dim);
  DenseAdam<float> tensorflow(kRows, dim);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t c = 0; c < dim; ++c) {
      truth.w[static_cast<size_t>(row * dim + c)] = rows.store().weights(row)[c];
      tensorflow.w[static_cast<size_t>(row * dim + c)] = rows.store().weights(row)[c];
    }
  }
  std::mt19937_64 random(static_cast<uint64_t>(dim) + 1);
  for (int t = 1; t <= 300; ++t) {
    RandomStep step;
    for (int part = 0; part < 4; ++part) {
      const double probability = 0.5 / std::pow(4.7, part);
      RandomStep some = MakeRandomStep(kRows / 4, dim, probability, &random);
      for (int64_t row : some.rows) step.rows.push_back(row + part * kRows / 4);
      step.grads.insert(step.grads.end(), some.grads.begin(), some.grads.end());
    }
    const float alpha = Alpha(t, beta1, beta2);
    rows.Step(pool, std::vector<float>{alpha, beta1, beta2, epsilon}, step.rows, step.grads);
    truth.Step(alpha, beta1, beta2, epsilon, step.rows, step.grads);
    tensorflow.Step(alpha, beta1, beta2, epsilon, step.rows, step.grads);
    if (read_between) rows.CatchUp(pool, MakeRandomStep(kRows, dim, 0.1, &random).rows);
  }
  EXPECT_TRUE(rows.status().ok()) << rows.status().message();
  rows.CatchUp(pool, rows.AllRows());
  return {Error(rows, dim, truth.w), Error(rows, dim, tensorflow.w)};
}

TEST(ExactAdamTraining, FollowsDenseAdamForEveryDim) {
  for (int64_t dim : {1, 2, 3, 7, 16, 63, 64, 129, 1025}) {
    const Outcome outcome = Train(0.9f, 0.999f, 1e-8f, dim, /*read_between=*/true);
    EXPECT_LT(outcome.to_double, 4e-6) << dim;
    EXPECT_LT(outcome.to_float, 6e-6) << dim;
  }
}

TEST(ExactAdamTraining, FollowsDenseAdamForOtherConstants) {
  struct Constants {
    float beta1;
    float beta2;
    float epsilon;
  };
  for (const Constants& k :
       {Constants{0.9f, 0.999f, 1e-3f}, Constants{0.9f, 0.999f, 10.0f}, Constants{0.9f, 0.98f, 1e-9f},
        Constants{0.9f, 0.9f, 1e-8f}, Constants{0.0f, 0.999f, 1e-8f}, Constants{0.5f, 0.25f, 1e-8f}}) {
    const Outcome outcome = Train(k.beta1, k.beta2, k.epsilon, 5, /*read_between=*/true);
    EXPECT_LT(outcome.to_double, 4e-6) << k.beta1 << " " << k.beta2 << " " << k.epsilon;
    EXPECT_LT(outcome.to_float, 6e-6) << k.beta1 << " " << k.beta2 << " " << k.epsilon;
  }
}

}  // namespace
}  // namespace sok
