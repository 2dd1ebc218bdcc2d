#include "cc/cpu/dense_tables/combine_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/cpu/pooling/testing/pool_reference.h"

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

}  // namespace
}  // namespace sok
