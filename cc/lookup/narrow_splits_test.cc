#include "cc/lookup/narrow_splits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace sok {
namespace {

// The indices of ids in these bags.
std::vector<int64_t> IndicesOf(const std::vector<int64_t>& bags) {
  std::vector<int64_t> indices;
  for (const int64_t bag : bags) indices.insert(indices.end(), {bag, 7});
  return indices;
}

// splits[b]: how many ids are in bags before b.
std::vector<int32_t> SplitsOf(const std::vector<int64_t>& bags, int64_t num_bags) {
  std::vector<int32_t> splits;
  for (int64_t b = 0; b <= num_bags; ++b) {
    splits.push_back(
        static_cast<int32_t>(std::count_if(bags.begin(), bags.end(), [&](int64_t bag) { return bag < b; })));
  }
  return splits;
}

bool InOrder(const std::vector<int64_t>& bags, int64_t num_bags, int64_t begin = 0) {
  return AreInOrder(IndicesOf(bags).data(), begin, static_cast<int64_t>(bags.size()), num_bags);
}

TEST(NarrowSplitsTest, OfIdsInRangesOfEachSize) {
  std::mt19937_64 random(5);
  for (const int64_t num_bags : {1, 2, 9, 40}) {
    for (const int64_t num_ids : {1, 3, 8, 61}) {
      std::vector<int64_t> bags;
      for (int64_t i = 0; i < num_ids; ++i) bags.push_back(static_cast<int64_t>(random() % num_bags));
      std::sort(bags.begin(), bags.end());
      const std::vector<int64_t> indices = IndicesOf(bags);
      for (const int64_t range : {int64_t{1}, int64_t{2}, int64_t{7}, num_ids}) {
        std::vector<int32_t> splits(num_bags + 1, -1);
        for (int64_t begin = 0; begin < num_ids; begin += range) {
          const int64_t end = std::min(begin + range, num_ids);
          EXPECT_TRUE(AreInOrder(indices.data(), begin, end, num_bags));
          WriteNarrowSplits(indices.data(), begin, end, num_ids, num_bags, splits.data());
        }
        EXPECT_EQ(splits, SplitsOf(bags, num_bags)) << num_bags << " bags, " << num_ids << " ids, " << range;
      }
    }
  }
}

TEST(NarrowSplitsTest, NotOfIdsOutOfOrderOrBeyondTheBags) {
  EXPECT_TRUE(InOrder({0, 0, 2}, 3));
  EXPECT_FALSE(InOrder({0, 2, 1}, 3));
  EXPECT_FALSE(InOrder({0, 0, 3}, 3));
  EXPECT_FALSE(InOrder({-1, 0, 2}, 3));
  // A range is compared with the id before it.
  EXPECT_FALSE(InOrder({2, 1, 2}, 3, 1));
  EXPECT_TRUE(InOrder({2, 1, 2}, 3, 2));
}

TEST(NarrowSplitsTest, OfRowSplits) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const std::vector<int64_t> splits = {0, 5, 3, kMost, kMost + 1, -1, 7};
  for (int64_t i = 0; i < static_cast<int64_t>(splits.size()); ++i) {
    EXPECT_EQ(AreNarrow(splits.data(), i, i + 1), i != 4 && i != 5) << i;
  }
  EXPECT_TRUE(AreNarrow(splits.data(), 0, 4));
  EXPECT_FALSE(AreNarrow(splits.data(), 0, 5));
}

}  // namespace
}  // namespace sok
