#include "cc/table/waiting_ids.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

#include "cc/base/testing/test_ids.h"

namespace sok {
namespace {

TEST(WaitingIdsTest, RandomStreamsEqualAMap) {
  WaitingIds waiting;
  ASSERT_TRUE(waiting.TrackChanges().ok());
  std::map<int64_t, std::pair<int64_t, int64_t>> expected;
  std::vector<int64_t> pool = DistinctIds(100, 5);
  for (const int64_t id : HostileIds()) pool.push_back(id);
  std::mt19937_64 random(4);
  for (int round = 0; round < 5000; ++round) {
    const int64_t id = pool[random() % pool.size()];
    if (random() % 3 == 0) {
      ASSERT_EQ(waiting.Erase(id), expected.erase(id) == 1);
    } else {
      const int64_t count = static_cast<int64_t>(random() % 9);
      ASSERT_TRUE(waiting.Set(id, count, round).ok());
      expected[id] = {count, round};
    }
    ASSERT_EQ(waiting.size(), static_cast<int64_t>(expected.size()));
  }
  std::map<int64_t, std::pair<int64_t, int64_t>> actual;
  for (int64_t place = 0; place < waiting.limit(); ++place) {
    if (waiting.in_use(place)) {
      actual[waiting.id(place)] = {waiting.count(place), waiting.last_step(place)};
      EXPECT_TRUE(waiting.changed(place));
    }
  }
  EXPECT_EQ(actual, expected);
  EXPECT_LE(waiting.limit(), static_cast<int64_t>(pool.size()));
  EXPECT_FALSE(waiting.erased_ids().empty());
}

// The ids at all places; INT64_MIN where there is none.
std::vector<int64_t> IdsOf(const WaitingIds& waiting) {
  std::vector<int64_t> ids;
  for (int64_t place = 0; place < waiting.limit(); ++place) {
    ids.push_back(waiting.in_use(place) ? waiting.id(place) : INT64_MIN);
  }
  return ids;
}

TEST(WaitingIdsTest, ErasedTogetherTheOrderOfIdsMakesNoDifference) {
  std::vector<std::vector<int64_t>> places;
  for (const std::vector<int64_t>& erased :
       {std::vector<int64_t>{2, 99, 4, 5, 4}, std::vector<int64_t>{5, 4, 2}}) {
    WaitingIds waiting;
    for (int64_t id = 0; id < 7; ++id) ASSERT_TRUE(waiting.Set(id, 1, 0).ok());
    ASSERT_TRUE(waiting.Reserve(0, 5).ok());
    waiting.EraseAll(erased);
    EXPECT_EQ(waiting.size(), 4);
    for (int64_t id = 10; id < 13; ++id) ASSERT_TRUE(waiting.Set(id, 1, 0).ok());
    places.push_back(IdsOf(waiting));
  }
  EXPECT_EQ(places[0], (std::vector<int64_t>{0, 1, 12, 3, 11, 10, 6})) << "the last freed first";
  EXPECT_EQ(places[1], places[0]);
}

}  // namespace
}  // namespace sok
