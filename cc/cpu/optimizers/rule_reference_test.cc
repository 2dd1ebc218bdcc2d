// Every rule against its own Reference, which works row by row in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cc/base/testing/vector_levels.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"
#include "cc/optimizers/testing/rule_cases.h"

namespace sok {
namespace {

// All rows in double precision, including those without a gradient.
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

class RuleReferenceTest : public testing::TestWithParam<RuleCase> {
 protected:
  static constexpr int64_t kRows = 12;

  // Trains at random. The last row never has a gradient; the three before it rarely have one.
  static void Check(int64_t dim, int steps, int threads) {
    const std::vector<float>& hyper = GetParam().hyper;
    TrainedRows rows(GetParam().name, kRows, dim, hyper);
    ASSERT_TRUE(rows.status().ok()) << rows.status().message();
    ReferenceTable expected(GetParam().rule(), rows, rows.optimizer().Slots(dim, hyper));
    const std::vector<float> last_row = rows.Record(kRows - 1);
    ThreadPool pool(threads, /*min_block_ns=*/0);
    std::mt19937_64 random(static_cast<uint64_t>(dim));
    for (int t = 0; t < steps; ++t) {
      std::vector<float> now = hyper;
      now[0] *= 1.0f + 0.1f * static_cast<float>(t % 4);
      RandomStep step = MakeRandomStep(kRows - 4, dim, t % 7 == 5 ? 0.0 : 0.6, &random);
      AddSeldomRow(t, dim, &random, &step);
      rows.Step(pool, now, step.rows, step.grads);
      expected.Step(now, step);
      if (t % 5 == 2) rows.CatchUp(pool, MakeRandomStep(kRows, dim, 0.3, &random).rows);
    }
    rows.CatchUp(pool, rows.AllRows());
    ASSERT_TRUE(rows.status().ok()) << rows.status().message();
    EXPECT_EQ(rows.optimizer().steps(), steps);
    EXPECT_EQ(rows.Record(kRows - 1), last_row) << "a row without any gradient";
    for (int64_t row = 0; row < kRows; ++row) ExpectNear(rows.Record(row), expected.Record(row), dim, row);
  }

 private:
  static void AddSeldomRow(int t, int64_t dim, std::mt19937_64* random, RandomStep* step) {
    if (t % 9 != 1) return;
    step->rows.push_back(kRows - 4 + t / 9 % 3);
    std::normal_distribution<float> normal;
    for (int64_t c = 0; c < dim; ++c) step->grads.push_back(normal(*random));
  }

  static void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected, int64_t dim,
                         int64_t row) {
    ASSERT_EQ(actual.size(), expected.size());
    // Every step rounds a few times. FTRL's linear slot is a sum of numbers larger than itself.
    double largest = 1.0;
    for (const double value : expected) largest = std::max(largest, std::fabs(value));
    for (size_t k = 0; k < actual.size(); ++k) {
      ASSERT_NEAR(actual[k], expected[k], 1e-5 * largest)
          << "dim " << dim << " row " << row << " float " << k;
    }
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

}  // namespace
}  // namespace sok
