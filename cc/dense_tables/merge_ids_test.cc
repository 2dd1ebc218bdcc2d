#include "cc/dense_tables/merge_ids.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "cc/base/thread_pool.h"

namespace sok {
namespace {

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
