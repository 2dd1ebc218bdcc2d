#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/cpu/dedup/testing/dedup_reference.h"
#include "cc/cpu/dense_tables/combine_rows.h"
#include "cc/cpu/dense_tables/train_rows.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"
#include "cc/cpu/pooling/testing/random_lookup.h"
#include "cc/optimizers/testing/rule_cases.h"

namespace sok {
namespace {

// An input of each kind; occurrences are numbered by the caller.
std::vector<InputBags> InputsOfAllKinds() {
  const auto fixed = [](const std::vector<int64_t>& shape, Combiner combiner, bool pools) {
    return FixedBags(shape, combiner, pools).value();
  };
  const std::vector<int64_t> splits = {0, 2, 2, 9, 10};
  const std::vector<int64_t> bags = {1, 1, 3};
  return {fixed({4, 3}, Combiner::kMean, true), fixed({2, 3, 4}, Combiner::kSum, true),
          fixed({7}, Combiner::kSum, false),    SplitBags(splits, Combiner::kSum, true).value(),
          fixed({6, 1}, Combiner::kMean, true), NumberedBags(5, bags, Combiner::kMean).value(),
          fixed({3, 0}, Combiner::kMean, true), SplitBags(splits, Combiner::kSum, false).value()};
}

// The bag of each occurrence of an input.
std::vector<int64_t> BagOfEach(const InputBags& bags) {
  std::vector<int64_t> of_each;
  for (int64_t b = 0; b < bags.outputs(); ++b) {
    const int64_t size = bags.pools ? bags.offsets[b + 1] - bags.offsets[b] : 1;
    of_each.insert(of_each.end(), size, b);
  }
  return of_each;
}

TEST(CombineRowsTest, InputsAndTheirGradientsFollowTheirDefinition) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  ThreadPool pool(3, /*min_block_ns=*/0);
  RowGradientSums sums;
  for (const int64_t dim : {1, 5, 16}) {
    constexpr int64_t kRows = 6;
    std::vector<float> rows(kRows * dim);
    for (float& value : rows) value = normal(random);
    std::vector<const float*> row_of;
    for (int64_t r = 0; r < kRows; ++r) row_of.push_back(rows.data() + r * dim);
    std::vector<int32_t> all_places;
    std::vector<double> expected(kRows * dim);
    std::vector<std::vector<float>> gradients;
    for (const InputBags& bags : InputsOfAllKinds()) {
      std::vector<int32_t> places(bags.occurrences);
      // Nobody reads the last row.
      for (int32_t& place : places) place = static_cast<int32_t>(random() % (kRows - 1));
      std::vector<float> out(bags.outputs() * dim);
      CombineRows(pool, row_of, places, bags, dim, out.data());
      EXPECT_EQ(out, bags.pools ? PoolReference(row_of, places, bags.offsets, {}, bags.combiner, dim)
                                : GatherReference(row_of, places, dim));
      std::vector<float>& of_input = gradients.emplace_back(out.size());
      for (float& value : of_input) value = normal(random);
      const std::vector<int64_t> bag_of_each = BagOfEach(bags);
      for (size_t i = 0; i < places.size(); ++i) {
        const int64_t bag = bag_of_each[i];
        const bool is_mean = bags.pools && bags.combiner == Combiner::kMean;
        const double divisor = is_mean ? bags.offsets[bag + 1] - bags.offsets[bag] : 1;
        for (int64_t c = 0; c < dim; ++c) {
          expected[places[i] * dim + c] += of_input[bag * dim + c] / divisor;
        }
      }
      sums.Add(bags, of_input.data(), dim);
      all_places.insert(all_places.end(), places.begin(), places.end());
    }
    std::vector<float> actual(kRows * dim, -1.0f);
    sums.Sum(pool, all_places, kRows, dim, actual.data());
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-5) << i;
  }
}

TEST(CombineRowsTest, BagsThatAreNoneAreErrors) {
  const auto of_splits = [](const std::vector<int64_t>& splits) {
    return std::string(SplitBags(splits, Combiner::kSum, true).status().message());
  };
  EXPECT_EQ(of_splits({}), "row splits do not begin with 0");
  EXPECT_EQ(of_splits({1, 2}), "row splits do not begin with 0");
  EXPECT_EQ(of_splits({0, 3, 2}), "row splits fall from 3 to 2");
  const auto of_shape = [](const std::vector<int64_t>& shape) {
    return std::string(FixedBags(shape, Combiner::kSum, true).status().message());
  };
  EXPECT_EQ(of_shape({}), "ids without a shape are in no bags");
  EXPECT_EQ(of_shape({2, -1}), "there is no dimension of -1 after 2 bags");
  EXPECT_EQ(of_shape({int64_t{1} << 40, int64_t{1} << 40}),
            "there is no dimension of 1099511627776 after 1099511627776 bags");
  const auto of_numbers = [](int64_t count, const std::vector<int64_t>& bags) {
    return std::string(NumberedBags(count, bags, Combiner::kSum).status().message());
  };
  EXPECT_EQ(of_numbers(2, {0, 2}), "id 1 is in row 2 of 2, after one in row 0");
  EXPECT_EQ(of_numbers(2, {-1}), "id 0 is in row -1 of 2");
  EXPECT_EQ(of_numbers(3, {2, 1}), "id 1 is in row 1 of 3, after one in row 2");
  EXPECT_EQ(of_numbers(-1, {}), "there are -1 rows of ids");
  EXPECT_EQ(of_numbers(0, {}), "");
}

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

TEST(MakeKeysTest, AddsTheBaseAndTheSizesOfFeaturesBefore) {
  const std::vector<int64_t> one = {4, 0, 4};
  const std::vector<int64_t> size = {5};
  std::vector<int64_t> keys(3);
  int64_t worst = 0;
  EXPECT_TRUE(MakeKeys({one, size, 10}, keys, &worst));
  EXPECT_EQ(keys, (std::vector<int64_t>{14, 10, 14}));

  const std::vector<int64_t> features = {2, 0, 1, 3};
  const std::vector<int64_t> sizes = {3, 4};
  keys.resize(4);
  EXPECT_TRUE(MakeKeys({features, sizes, 10}, keys, &worst));
  EXPECT_EQ(keys, (std::vector<int64_t>{12, 13, 11, 16}));
  EXPECT_TRUE(MakeKeys({{}, sizes, 10}, {}, &worst));

  const std::vector<int64_t> three = {2, 0, 1, 1, 3, 0};
  keys.resize(6);
  EXPECT_TRUE(MakeKeys({three, std::vector<int64_t>{3, 4, 2}, 10}, keys, &worst));
  EXPECT_EQ(keys, (std::vector<int64_t>{12, 13, 18, 11, 16, 17}));

  EXPECT_EQ(KeysEnd(size, 10), 15);
  EXPECT_EQ(KeysEnd(sizes, 10), 17);
  EXPECT_EQ(KeysEnd(std::vector<int64_t>{5, kHighest}, 10), kHighest);
}

TEST(MakeKeysTest, FindsTheIdFarthestOut) {
  const auto worst_of = [](const std::vector<int64_t>& ids, const std::vector<int64_t>& sizes) {
    std::vector<int64_t> keys(ids.size());
    int64_t worst = 0;
    EXPECT_FALSE(MakeKeys({ids, sizes, kHighest}, keys, &worst));
    return worst;
  };
  EXPECT_EQ(worst_of({0, 5, 7}, {5}), 7);
  EXPECT_EQ(worst_of({7, -1, -2}, {5}), -2);
  EXPECT_EQ(worst_of({kHighest, 0}, {5}), kHighest);
  EXPECT_EQ(worst_of({kHighest, kLowest}, {5}), kLowest);
  // 3 fits the second feature only.
  EXPECT_EQ(worst_of({0, 3, 3, 0}, {3, 4}), 3);
  EXPECT_EQ(worst_of({2, 4, 1, 9}, {3, 4}), 9);
  EXPECT_EQ(worst_of({2, -4, 8, 9}, {3, 4}), -4);
}

TEST(MergeKeysTest, KeepsTheOrderOfFirstOccurrences) {
  ThreadPool pool(3, /*min_block_ns=*/0);
  MergeIdsScratch scratch;
  scratch.keys = {7, 3, 7, 7, 0, 3};
  std::vector<int64_t> distinct;
  std::vector<int32_t> places(6);
  ASSERT_TRUE(MergeKeys(pool, &scratch, /*limit=*/8, &distinct, places).ok());
  EXPECT_EQ(distinct, (std::vector<int64_t>{7, 3, 0}));
  EXPECT_EQ(places, (std::vector<int32_t>{0, 1, 0, 0, 2, 1}));
}

// Matrices with the weights and slots of `rows`.
struct Matrices {
  explicit Matrices(const TrainedRows& rows) : num_rows(rows.size()), dim(rows.store().dim()) {
    const int num_slots = rows.store().num_slots();
    data.resize(1 + num_slots);
    for (int64_t row = 0; row < num_rows; ++row) {
      const std::vector<float> record = rows.Record(row);
      for (int k = 0; k <= num_slots; ++k) {
        data[k].insert(data[k].end(), record.begin() + k * dim, record.begin() + (k + 1) * dim);
      }
    }
    for (int k = 1; k <= num_slots; ++k) slots.push_back(data[k].data());
  }

  DenseTable table() { return {num_rows, dim, data[0].data(), slots}; }

  std::vector<float> Record(int64_t row) const {
    std::vector<float> record;
    for (const std::vector<float>& matrix : data) {
      record.insert(record.end(), matrix.begin() + row * dim, matrix.begin() + (row + 1) * dim);
    }
    return record;
  }

  int64_t num_rows;
  int64_t dim;
  std::vector<std::vector<float>> data;  // weights, then slots
  std::vector<float*> slots;
};

void ExpectSameBits(const Matrices& actual, const TrainedRows& expected) {
  for (int64_t row = 0; row < actual.num_rows; ++row) {
    ASSERT_EQ(actual.Record(row), expected.Record(row)) << "row " << row << " of dim " << actual.dim;
  }
}

// A step whose gradients have few bits, so that parts of them add up without rounding, in any order.
RandomStep MakeCoarseStep(int64_t rows, int64_t dim, double probability, std::mt19937_64* random) {
  RandomStep step = MakeRandomStep(rows, dim, probability, random);
  for (float& g : step.grads) g = std::round(g * 256) / 256;
  return step;
}

// Splits some of a step's rows into two to four occurrences at random places.
RandomStep WithDuplicates(const RandomStep& step, int64_t dim, std::mt19937_64* random) {
  RandomStep result = step;
  for (size_t i = 0; i < step.rows.size(); i += 2) {
    for (size_t copies = 0; copies < 1 + i % 3; ++copies) {
      result.rows.push_back(step.rows[i]);
      for (int64_t c = 0; c < dim; ++c) {
        float& first = result.grads[i * dim + c];
        first /= 2;
        result.grads.push_back(first);
      }
    }
  }
  std::vector<size_t> order(result.rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), *random);
  RandomStep shuffled;
  for (const size_t i : order) {
    shuffled.rows.push_back(result.rows[i]);
    shuffled.grads.insert(shuffled.grads.end(), result.grads.begin() + i * dim,
                          result.grads.begin() + (i + 1) * dim);
  }
  return shuffled;
}

class TrainRowsTest : public testing::TestWithParam<RuleCase> {};

// As many rows as threads share, and few.
TEST_P(TrainRowsTest, GivesTheBitsOfAnEnginesTable) {
  const auto rule = FindDenseRule(GetParam().name);
  if (!rule.ok()) {
    EXPECT_TRUE(GetParam().rule().untouched != UntouchedRows::kStay || GetParam().rule().mixes_elements);
    return;
  }
  ThreadPool pool(3, /*min_block_ns=*/0);
  std::mt19937_64 random(1);
  TrainRowsScratch scratch;
  for (int64_t dim : {1, 3, 16, 65, 4100}) {
    const int64_t num_rows = dim < 10 ? 300 : 12;
    TrainedRows expected(GetParam().name, num_rows, dim, GetParam().hyper);
    ASSERT_TRUE(expected.status().ok()) << expected.status().message();
    Matrices matrices(expected);
    for (int t = 0; t < 8; ++t) {
      std::vector<float> hyper = GetParam().hyper;
      hyper[0] *= 1.0f + 0.1f * static_cast<float>(t % 4);
      const RandomStep step = MakeCoarseStep(num_rows, dim, t == 3 ? 0.0 : 0.6, &random);
      const RandomStep given = t % 2 == 0 ? step : WithDuplicates(step, dim, &random);
      expected.Step(pool, hyper, step.rows, step.grads);
      const Status status =
          TrainRows(pool, rule.value(), hyper, matrices.table(), given.rows, given.grads.data(), &scratch);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ASSERT_TRUE(expected.status().ok()) << expected.status().message();
    ExpectSameBits(matrices, expected);
  }
}

TEST_P(TrainRowsTest, AnErrorChangesNothing) {
  const auto rule = FindDenseRule(GetParam().name);
  if (!rule.ok()) return;
  TrainedRows before(GetParam().name, 4, 3, GetParam().hyper);
  ASSERT_TRUE(before.status().ok()) << before.status().message();
  Matrices matrices(before);
  InlineExecutor executor;
  TrainRowsScratch scratch;
  const std::vector<float> gradients(6, 1.0f);
  const auto train = [&](Span<const float> hyper, const DenseTable& table, std::vector<int64_t> rows) {
    return std::string(
        TrainRows(executor, rule.value(), hyper, table, rows, gradients.data(), &scratch).message());
  };
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(train(GetParam().hyper, matrices.table(), {3, 4}), "row 4 is not in [0, 4)");
  EXPECT_EQ(train(GetParam().hyper, matrices.table(), {-1, 0}), "row -1 is not in [0, 4)");
  EXPECT_EQ(train(GetParam().hyper, matrices.table(), {0, kLarge}),
            "row " + std::to_string(kLarge) + " is not in [0, 4)");
  std::vector<float> hyper = GetParam().hyper;
  hyper[0] = std::nanf("");
  EXPECT_NE(train(hyper, matrices.table(), {0, 1}).find("'" + GetParam().name + "'"), std::string::npos);
  DenseTable table = matrices.table();
  std::vector<float*> slots(matrices.slots);
  slots.push_back(matrices.data[0].data());
  table.slots = slots;
  EXPECT_NE(train(GetParam().hyper, table, {0, 1}).find(" slots, not "), std::string::npos);
  ExpectSameBits(matrices, before);
}

INSTANTIATE_TEST_SUITE_P(All, TrainRowsTest, testing::ValuesIn(AllRuleCases()),
                         RuleCaseName<testing::TestParamInfo<RuleCase>>);

TEST(FindDenseRuleTest, SaysWhyARuleIsNoneForDenseTables) {
  EXPECT_EQ(FindDenseRule("adam").status().message(), "Optimizer 'adam' changes rows without a gradient");
  EXPECT_EQ(FindDenseRule("rowwise_adagrad").status().message(),
            "Optimizer 'rowwise_adagrad' has a slot of one number per row");
  EXPECT_EQ(FindDenseRule("group_ftrl").status().message(),
            "Optimizer 'group_ftrl' needs the norm of a slot");
  EXPECT_EQ(FindDenseRule("none").status().message(), "Unknown optimizer 'none'");
  EXPECT_TRUE(FindDenseRule("lazy_adam").ok());
}

void ExpectAsReference(Executor& executor, const std::vector<int64_t>& rows, int64_t limit,
                       RowDeduplicator* deduplicator) {
  std::vector<int64_t> unique(3, -7);
  std::vector<int32_t> inverse(rows.size(), -7);
  const Status status = deduplicator->Run(executor, rows, limit, &unique, inverse);
  ASSERT_TRUE(status.ok()) << status.message();
  const ReferenceUnique expected = ReferenceDedup(rows);
  EXPECT_EQ(unique, expected.unique) << "limit " << limit;
  EXPECT_EQ(inverse, expected.inverse) << "limit " << limit;
}

// One object for all batches, so that what one leaves behind would be seen in the next.
TEST(RowDedupTest, FindsWhatTheReferenceFinds) {
  std::mt19937_64 random(1);
  InlineExecutor one_thread;
  ThreadPool six_threads(5, /*min_block_ns=*/0);
  RowDeduplicator deduplicator;
  for (Executor* executor : {static_cast<Executor*>(&one_thread), static_cast<Executor*>(&six_threads)}) {
    for (const int64_t limit : {1, 2, 50, 3000, 3001, 100000, 7}) {
      for (const size_t size : {0, 1, 40, 2000, 20000}) {
        std::vector<int64_t> uniform(size), skewed(size), last(size, limit - 1);
        for (size_t i = 0; i < size; ++i) {
          uniform[i] = static_cast<int64_t>(random() % limit);
          skewed[i] = static_cast<int64_t>(random() % (1 + random() % limit));
        }
        for (const auto& rows : {uniform, skewed, last}) {
          ExpectAsReference(*executor, rows, limit, &deduplicator);
        }
      }
    }
  }
}

TEST(RowDedupTest, TakesRowsThatAreNotInTheTable) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  InlineExecutor executor;
  RowDeduplicator deduplicator;
  ExpectAsReference(executor, {3, 3, 1}, 4, &deduplicator);
  for (const int64_t bad : {int64_t{4}, int64_t{-1}, kLowest, kHighest}) {
    ExpectAsReference(executor, {3, bad, 3, 0, bad}, 4, &deduplicator);
    ExpectAsReference(executor, {3, 0}, 4, &deduplicator);
  }
  for (const int64_t limit : {int64_t{0}, int64_t{-1}, kLowest, kHighest}) {
    ExpectAsReference(executor, {3, 5, 3}, limit, &deduplicator);
    ExpectAsReference(executor, {}, limit, &deduplicator);
  }
}

}  // namespace
}  // namespace sok
