// A group over any number of ranks gives the same results as one process with the batches of all ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "cc/base/thread_pool.h"
#include "cc/cpu/sharded/testing/random_batches.h"
#include "cc/cpu/sharded/testing/sharded_step.h"

namespace sok::sharded_group {
namespace {

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1.0f + std::abs(expected[i]))) << i;
  }
}

void ExpectSameGradients(const GradientsById& actual, const GradientsById& expected, float tolerance) {
  for (size_t t = 0; t < expected.size(); ++t) {
    ASSERT_EQ(actual[t].size(), expected[t].size()) << "table " << t;
    for (const auto& [id, gradient] : expected[t]) {
      ASSERT_TRUE(actual[t].count(id)) << id;
      ExpectNear(actual[t].at(id), gradient, tolerance);
    }
  }
}

struct Case {
  int ranks;
  ExchangeMode mode;
  int threads;
};

class ShardedGroupTest : public testing::TestWithParam<Case> {
 protected:
  void Compare(const Shape& shape, uint64_t seed) {
    const int ranks = GetParam().ranks;
    ThreadPool executor(GetParam().threads, /*min_block_ns=*/0);
    const std::vector<ExchangeMode> modes(shape.tables, GetParam().mode);
    ShardedGroup group(ranks, modes, executor, MakeTable);
    OneProcess one;
    for (int t = 0; t < shape.tables; ++t) one.tables.push_back(MakeTable(t, 0, 1));
    for (uint64_t step = 0; step < 3; ++step) {
      const std::vector<Batch> batches = RandomBatches(seed + step, ranks, shape, modes);
      const auto gradients = RandomGradients(seed + step, batches);
      group.Forward(batches);
      const GradientsById expected = one.Step(executor, batches, gradients);
      ASSERT_TRUE(one.status.ok()) << one.status.message();
      for (int r = 0; r < ranks; ++r) {
        ASSERT_TRUE(group.rank(r).status.ok()) << group.rank(r).status.message();
        for (size_t l = 0; l < batches[r].lookups.size(); ++l) {
          // The rows have the same bits and are pooled in the same order.
          if (GetParam().mode == ExchangeMode::kRows) {
            ASSERT_EQ(group.rank(r).outputs.values[l], one.outputs[r].values[l]);
          } else {
            ExpectNear(group.rank(r).outputs.values[l], one.outputs[r].values[l], 1e-5f);
          }
        }
      }
      ExpectSameGradients(group.Backward(gradients), expected, 1e-5f);
      for (int r = 0; r < ranks; ++r) ASSERT_TRUE(group.rank(r).status.ok());
    }
    ExpectSameTables(group, one);
  }

  static void ExpectSameTables(ShardedGroup& group, const OneProcess& one) {
    for (size_t t = 0; t < one.tables.size(); ++t) {
      int64_t rows = 0;
      for (int r = 0; r < group.size(); ++r) rows += group.rank(r).tables[t]->size();
      EXPECT_EQ(rows, one.tables[t]->size());
    }
  }
};

TEST_P(ShardedGroupTest, OneLookup) { Compare({1, 1, 40, false}, 100); }
TEST_P(ShardedGroupTest, MoreTablesThanRanks) { Compare({7, 7, 30, false}, 200); }
TEST_P(ShardedGroupTest, NoBagsOnAnyRank) { Compare({2, 2, 0, false}, 300); }
TEST_P(ShardedGroupTest, LargeBatch) { Compare({2, 2, 3000, false}, 500); }

// Tables with an exchange of sums have one lookup, without weights.
class ShardedRowsTest : public ShardedGroupTest {};
TEST_P(ShardedRowsTest, SeveralLookupsOfATableWithWeights) { Compare({3, 8, 25, true}, 400); }

std::vector<Case> Cases(const std::vector<ExchangeMode>& modes) {
  std::vector<Case> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const ExchangeMode mode : modes) {
      for (const int threads : {1, 3}) cases.push_back({ranks, mode, threads});
    }
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.ranks) + (info.param.mode == ExchangeMode::kRows ? "Rows" : "Sums") +
         std::to_string(info.param.threads) + "Threads";
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedGroupTest,
                         testing::ValuesIn(Cases({ExchangeMode::kRows, ExchangeMode::kSums})), CaseName);
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedRowsTest, testing::ValuesIn(Cases({ExchangeMode::kRows})), CaseName);

// A rank may read while other ranks train: its new ids are not inserted, and it sends no gradients.
TEST(ShardedGroup, SomeRanksTrainAndSomeOnlyRead) {
  InlineExecutor executor;
  for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) {
    ShardedGroup group(3, {mode}, executor, MakeTable);
    std::vector<Batch> batches(3);
    batches[0].Add(0, {1, 2, 3}, {0, 1, 3});
    batches[1].Add(0, {3, 4, 5}, {0, 3});
    batches[2].Add(0, {5, 6}, {0, 2});
    batches[1].training = false;
    group.Forward(batches);
    int64_t rows = 0;
    for (int r = 0; r < 3; ++r) {
      ASSERT_TRUE(group.rank(r).status.ok()) << group.rank(r).status.message();
      rows += group.rank(r).tables[0]->size();
    }
    EXPECT_EQ(rows, 5);  // 4 was only read
    float row3, row4, row5;
    const Table& any = *group.rank(0).tables[0];
    any.InitialRow(3, Span<float>(&row3, 1));
    any.InitialRow(4, Span<float>(&row4, 1));
    any.InitialRow(5, Span<float>(&row5, 1));
    EXPECT_NEAR(group.rank(1).outputs.values[0][0], row3 + row4 + row5, 1e-6);
    const GradientsById gradients = group.Backward({{{1.0f, 2.0f}}, {{100.0f}}, {{4.0f}}});
    const GradientsById expected = {{{1, {1.0f}}, {2, {2.0f}}, {3, {2.0f}}, {5, {4.0f}}, {6, {4.0f}}}};
    EXPECT_EQ(gradients, expected);
  }
}

TEST(ShardedGroup, GradientsInHalfPrecision) {
  InlineExecutor executor;
  const Shape shape = {4, 4, 30, false};
  for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) {
    const std::vector<ExchangeMode> modes(4, mode);
    ShardedGroup group(3, modes, executor, MakeTable);
    OneProcess one;
    for (int t = 0; t < 4; ++t) one.tables.push_back(MakeTable(t, 0, 1));
    const std::vector<Batch> batches = RandomBatches(9, 3, shape, modes);
    const auto gradients = RandomGradients(9, batches);
    const GradientsById expected = one.Step(executor, batches, gradients);
    group.Forward(batches);
    ExpectSameGradients(group.Backward(gradients, GradientFormat::kFloat16), expected, 3e-3f);
    group.Forward(batches);
    ExpectSameGradients(group.Backward(gradients, GradientFormat::kBfloat16), expected, 2e-2f);
  }
}

}  // namespace
}  // namespace sok::sharded_group
