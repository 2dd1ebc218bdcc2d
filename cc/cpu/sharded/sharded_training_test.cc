// Training rows in the pass that sums their gradients gives the same bits as two passes.
#include <gtest/gtest.h>

#include <cmath>

#include "cc/base/thread_pool.h"
#include "cc/cpu/sharded/testing/random_batches.h"
#include "cc/cpu/sharded/testing/sharded_step.h"

namespace sok::sharded_training {
namespace {

struct NamedOptimizer {
  std::string name;
  std::vector<float> hyper;
};

const NamedOptimizer kSgd = {"sgd", {0.1f}};
const NamedOptimizer kAdagrad = {"adagrad", {0.1f, 0.1f, 1e-7f}};
const NamedOptimizer kOptimizers[] = {kSgd,
                                      kAdagrad,
                                      {"rowwise_adagrad", {0.1f, 0.1f, 1e-7f}},
                                      {"lazy_adam", {0.01f, 0.9f, 0.999f, 1e-8f}},
                                      {"adam", {0.01f, 0.9f, 0.999f, 1e-8f}}};

using Gradients = std::vector<std::vector<std::vector<float>>>;

// Trains in two passes: first the sums of all tables, then a division and a step of each table.
void TrainInTwoPasses(ShardedGroup& group, const Gradients& gradients, GradientFormat format, float divisor,
                      const NamedOptimizer& optimizer) {
  InlineExecutor executor;
  const GradientsById sums = group.Backward(gradients, format);
  for (int r = 0; r < group.size(); ++r) {
    Rank& rank = group.rank(r);
    ASSERT_TRUE(rank.status.ok()) << rank.status.message();
    for (size_t t = 0; t < rank.tables.size(); ++t) {
      const TablePart& part = rank.served.parts[t].merged;
      std::vector<float> grads;
      for (int64_t u = 0; u < part.trained; ++u) {
        for (const float sum : sums[t].at(part.unique[u])) grads.push_back(sum / divisor);
      }
      const auto rows = Span<const int64_t>(part.rows).subspan(0, part.trained);
      const Status status = rank.tables[t]->ApplyGradients({executor}, optimizer.name, optimizer.hyper, rows,
                                                           grads.data(), /*distinct=*/true);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
}

// Weights and slots of all rows of all ranks, brought up to date.
std::vector<float> Records(ShardedGroup& group) {
  InlineExecutor executor;
  std::vector<float> records;
  for (int r = 0; r < group.size(); ++r) {
    for (const auto& table : group.rank(r).tables) {
      const std::vector<int64_t> rows = table->Rows();
      table->BringUpToDate(executor, rows);
      for (const int64_t row : rows) {
        const float* record = table->weights(row);
        records.insert(records.end(), record, record + table->options().dim + table->slot_width());
      }
    }
  }
  return records;
}

struct Case {
  int ranks;
  ExchangeMode mode;
  int threads;
};

class ShardedTrainingTest : public testing::TestWithParam<Case> {
 protected:
  void Compare(const Shape& shape, GradientFormat format, float divisor, const NamedOptimizer& optimizer) {
    const int ranks = GetParam().ranks;
    ThreadPool executor(GetParam().threads, /*min_block_ns=*/0);
    const std::vector<ExchangeMode> modes(shape.tables, GetParam().mode);
    ShardedGroup one(ranks, modes, executor, MakeTable);
    ShardedGroup two(ranks, modes, executor, MakeTable);
    for (uint64_t step = 0; step < 3; ++step) {
      const std::vector<Batch> batches = RandomBatches(step, ranks, shape, modes);
      const Gradients gradients = RandomGradients(step, batches);
      one.Forward(batches);
      two.Forward(batches);
      one.BackwardAndTrain(gradients, format, divisor, optimizer.name,
                           std::vector<std::vector<float>>(ranks, optimizer.hyper));
      for (int r = 0; r < ranks; ++r) {
        ASSERT_TRUE(one.rank(r).status.ok()) << one.rank(r).status.message();
      }
      TrainInTwoPasses(two, gradients, format, divisor, optimizer);
    }
    EXPECT_EQ(Records(one), Records(two)) << optimizer.name;
    EXPECT_EQ(one.rank(0).tables[0]->steps(), 3);
  }
};

TEST_P(ShardedTrainingTest, EqualsTwoPassesBitForBit) {
  for (const NamedOptimizer& optimizer : kOptimizers) {
    Compare({5, 5, 30, false}, GradientFormat::kFloat32, 1.0f, optimizer);
  }
}

TEST_P(ShardedTrainingTest, SumsAreDivided) {
  for (const float divisor : {2.0f, 3.0f, 7.0f}) {
    Compare({5, 5, 30, false}, GradientFormat::kFloat32, divisor, kAdagrad);
  }
}

TEST_P(ShardedTrainingTest, GradientsInHalfPrecision) {
  Compare({3, 3, 30, false}, GradientFormat::kFloat16, 3.0f, kAdagrad);
  Compare({3, 3, 30, false}, GradientFormat::kBfloat16, 1.0f, kAdagrad);
}

TEST_P(ShardedTrainingTest, AStepWithoutBagsOnAnyRankIsAStep) {
  Compare({2, 2, 0, false}, GradientFormat::kFloat32, 1.0f, kOptimizers[4]);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) {
      for (const int threads : {1, 3}) cases.push_back({ranks, mode, threads});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedTrainingTest, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::to_string(info.param.ranks) +
                                  (info.param.mode == ExchangeMode::kRows ? "Rows" : "Sums") +
                                  std::to_string(info.param.threads) + "Threads";
                         });

// Several lookups of a table, with weights, need an exchange of rows.
TEST(ShardedTraining, SeveralLookupsOfATableWithWeights) {
  ThreadPool executor(3, /*min_block_ns=*/0);
  const std::vector<ExchangeMode> modes(3, ExchangeMode::kRows);
  ShardedGroup one(3, modes, executor, MakeTable);
  ShardedGroup two(3, modes, executor, MakeTable);
  const std::vector<Batch> batches = RandomBatches(5, 3, {3, 8, 25, true}, modes);
  const Gradients gradients = RandomGradients(6, batches);
  one.Forward(batches);
  two.Forward(batches);
  one.BackwardAndTrain(gradients, GradientFormat::kFloat32, 3.0f, kAdagrad.name,
                       std::vector<std::vector<float>>(3, kAdagrad.hyper));
  TrainInTwoPasses(two, gradients, GradientFormat::kFloat32, 3.0f, kAdagrad);
  EXPECT_EQ(Records(one), Records(two));
}

// Rows longer than a block, whose sums are stored in memory, and an id with nearly all occurrences.
TEST(ShardedTraining, LongRowsAndFrequentIds) {
  for (const int64_t dim : {int64_t{64}, RowGradients::kBlockFloats, RowGradients::kBlockFloats + 1}) {
    ThreadPool executor(3, /*min_block_ns=*/0);
    const auto make = [&](int /*t*/, int rank, int ranks) {
      TableOptions options;
      options.name = "table";
      options.dim = dim;
      options.rank = rank;
      options.ranks = ranks;
      return std::move(Table::Create(executor, options).value());
    };
    const int64_t bags = 9000;
    std::vector<Batch> batches(2);
    Gradients gradients(2);
    const std::vector<float> gradient(bags * (dim > 64 ? 1 : dim), 0.3f);
    for (int r = 0; r < 2; ++r) {
      std::vector<int64_t> ids(bags, 4);
      std::vector<int64_t> offsets = {0};
      for (int64_t b = 0; b < bags; ++b) offsets.push_back(b + 1);
      // One bag for long rows, many bags for short rows.
      if (dim > 64) offsets = {0, bags};
      ids[7] = 5;
      ids[8] = 6;
      batches[r].Add(0, ids, offsets);
      gradients[r].push_back(dim > 64 ? std::vector<float>(dim, 0.3f + r) : gradient);
    }
    ShardedGroup one(2, {ExchangeMode::kSums}, executor, make);
    ShardedGroup two(2, {ExchangeMode::kSums}, executor, make);
    one.Forward(batches);
    two.Forward(batches);
    one.BackwardAndTrain(gradients, GradientFormat::kFloat32, 3.0f, kAdagrad.name,
                         std::vector<std::vector<float>>(2, kAdagrad.hyper));
    TrainInTwoPasses(two, gradients, GradientFormat::kFloat32, 3.0f, kAdagrad);
    EXPECT_EQ(Records(one), Records(two)) << dim;
  }
}

class ShardedTrainingErrorsTest : public testing::Test {
 protected:
  ShardedTrainingErrorsTest()
      : group_(2, modes_, executor_, MakeTable), batches_(RandomBatches(3, 2, {3, 3, 20, false}, modes_)) {
    group_.Forward(batches_);
  }

  const std::vector<ExchangeMode> modes_ = std::vector<ExchangeMode>(3, ExchangeMode::kRows);
  InlineExecutor executor_;
  ShardedGroup group_;
  const std::vector<Batch> batches_;
};

TEST_F(ShardedTrainingErrorsTest, AnErrorOfOneTableChangesNoTable) {
  // The last table of rank 1 has another optimizer.
  ASSERT_TRUE(group_.rank(1)
                  .tables[2]
                  ->ApplyGradients({executor_}, "sgd", kSgd.hyper, {}, nullptr, /*distinct=*/true)
                  .ok());
  const std::vector<float> before = Records(group_);
  const Gradients gradients = RandomGradients(1, batches_);
  const float nan = std::nanf("");
  group_.BackwardAndTrain(gradients, GradientFormat::kFloat32, 1.0f, "adagrad",
                          {{nan, 0.1f, 0.0f}, kAdagrad.hyper});
  EXPECT_EQ(group_.rank(0).status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(group_.rank(1).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(group_.rank(1).status.message().find("'table2'"), std::string::npos);
  EXPECT_EQ(Records(group_), before);
  EXPECT_EQ(group_.rank(1).tables[0]->optimizer(), nullptr);
}

TEST_F(ShardedTrainingErrorsTest, GradientsOfAnotherStepTrainNothing) {
  const Gradients gradients = RandomGradients(1, batches_);
  group_.rank(1).served.token += 1;
  const std::vector<float> before = Records(group_);
  group_.BackwardAndTrain(gradients, GradientFormat::kFloat32, 1.0f, "sgd", {kSgd.hyper, kSgd.hyper});
  EXPECT_TRUE(group_.rank(0).status.ok());
  EXPECT_EQ(group_.rank(1).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(group_.rank(1).tables[0]->steps(), 0);
  EXPECT_NE(Records(group_), before) << "rank 0 has trained";
}

TEST_F(ShardedTrainingErrorsTest, RowsErasedSinceTheLookupAreNotTrained) {
  Table& table = *group_.rank(0).tables[0];
  const std::vector<int64_t> keys = table.Keys();
  ASSERT_GT(keys.size(), 2u);
  int64_t erased = 0;
  ASSERT_TRUE(table.Erase({executor_}, {&keys[0], 1}, &erased).ok());
  // Another id of this rank gets the freed row.
  const std::vector<int64_t> other = {int64_t{1} << 40};
  std::vector<int64_t> row(1);
  ASSERT_TRUE(table.FindOrMake(executor_, other, Span<int64_t>(row)).ok());
  const float before = *table.weights(row[0]);
  const Gradients gradients = RandomGradients(1, batches_);
  group_.BackwardAndTrain(gradients, GradientFormat::kFloat32, 1.0f, "sgd", {kSgd.hyper, kSgd.hyper});
  ASSERT_TRUE(group_.rank(0).status.ok()) << group_.rank(0).status.message();
  EXPECT_EQ(*table.weights(row[0]), before);
}

}  // namespace
}  // namespace sok::sharded_training
