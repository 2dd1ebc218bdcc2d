// The index against std::map, on keys of all kinds and through growth and erasure.
#include "cuda/index/key_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"

namespace sok {
namespace {

using Map = std::map<int64_t, int64_t>;

class KeyIndexTest : public testing::Test {
 protected:
  std::vector<int64_t> Find(const KeyIndex& index, const std::vector<int64_t>& keys) {
    DeviceArray<int64_t> device_keys(keys);
    DeviceArray<int64_t> rows(std::vector<int64_t>(keys.size(), -7));
    EXPECT_TRUE(FindKeys(nullptr, index.view(), device_keys.data(), keys.size(), rows.data()).ok());
    return rows.Fetch();
  }

  // Inserts absent distinct keys into both.
  void Insert(const std::vector<int64_t>& keys, int64_t first_row, KeyIndex* index, Map* map) {
    const auto n = static_cast<int64_t>(keys.size());
    std::vector<int64_t> rows;
    for (const int64_t key : keys) {
      rows.push_back(first_row++);
      map->emplace(key, rows.back());
    }
    ASSERT_TRUE(index->Reserve(nullptr, index->size() + n).ok());
    DeviceArray<int64_t> device_keys(keys);
    DeviceArray<int64_t> device_rows(rows);
    ASSERT_TRUE(InsertKeys(nullptr, index->view(), device_keys.data(), device_rows.data(), n).ok());
    index->CountInserted(n);
    device_keys.Fetch();  // waits before the arrays are freed
  }

  // Erases distinct keys from both. Returns the rows that the index reports for them.
  std::vector<int64_t> Erase(const std::vector<int64_t>& keys, KeyIndex* index, Map* map) {
    DeviceArray<int64_t> device_keys(keys);
    DeviceArray<int64_t> rows(std::vector<int64_t>(keys.size(), -7));
    EXPECT_TRUE(EraseKeys(nullptr, index->view(), device_keys.data(), keys.size(), rows.data()).ok());
    int64_t erased = 0;
    for (const int64_t key : keys) erased += map->erase(key);
    index->CountErased(nullptr, erased);
    return rows.Fetch();
  }

  static std::vector<int64_t> RowsIn(const Map& map, const std::vector<int64_t>& keys) {
    std::vector<int64_t> rows;
    for (const int64_t key : keys) {
      const auto found = map.find(key);
      rows.push_back(found == map.end() ? kAbsentRow : found->second);
    }
    return rows;
  }

  // Expects that the index has the keys of the map with their rows, and none of `others` that are not in the
  // map.
  void ExpectHolds(const KeyIndex& index, const Map& map, const std::vector<int64_t>& others) {
    std::vector<int64_t> keys = others;
    for (const auto& [key, row] : map) keys.push_back(key);
    EXPECT_EQ(Find(index, keys), RowsIn(map, keys));
    EXPECT_EQ(index.size(), static_cast<int64_t>(map.size()));
  }

  AsyncAllocator allocator_;
};

// The key whose hash is `hash`: Mix64 backwards.
int64_t KeyWithHash(uint64_t hash) {
  const auto undo_shift = [](uint64_t x, int shift) {
    uint64_t y = x;
    for (int known = shift; known < 64; known += shift) y = x ^ (y >> shift);
    return y;
  };
  const auto inverse = [](uint64_t odd) {
    uint64_t x = odd;  // correct to 3 bits; each step doubles that number
    for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
    return x;
  };
  uint64_t x = undo_shift(hash, 31) * inverse(0x94d049bb133111ebu);
  x = undo_shift(x, 27) * inverse(0xbf58476d1ce4e5b9u);
  x = undo_shift(x, 30) - 0x9e3779b97f4a7c15u;
  return static_cast<int64_t>(x);
}

TEST_F(KeyIndexTest, AnEmptyIndexHasNoKeys) {
  KeyIndex index(&allocator_);
  EXPECT_EQ(index.bytes(), 0);
  EXPECT_EQ(Find(index, HostileIds()), std::vector<int64_t>(HostileIds().size(), kAbsentRow));
  EXPECT_EQ(Find(index, {}), std::vector<int64_t>());
  Map map;
  EXPECT_EQ(Erase({0, 1}, &index, &map), (std::vector<int64_t>{kAbsentRow, kAbsentRow}));
  ASSERT_TRUE(index.Reserve(nullptr, 720).ok());
  Insert({}, 0, &index, &map);
  ASSERT_TRUE(index.Reserve(nullptr, 100).ok());
  EXPECT_EQ(Find(index, HostileIds()), std::vector<int64_t>(HostileIds().size(), kAbsentRow));
}

TEST_F(KeyIndexTest, EveryKeyIsLegal) {
  KeyIndex index(&allocator_);
  Map map;
  std::vector<int64_t> keys = HostileIds();
  Insert(keys, 0, &index, &map);
  ExpectHolds(index, map, {2, 3, -2, std::numeric_limits<int64_t>::max() - 1});
  EXPECT_EQ(Erase(keys, &index, &map), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  ExpectHolds(index, map, keys);
}

TEST_F(KeyIndexTest, SizesAroundThoseOfBucketsAndBlocks) {
  for (const double max_load : {0.5, 0.9, 1.0}) {
    for (const int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 1024}) {
      KeyIndex index(&allocator_, max_load);
      Map map;
      Insert(DistinctIds(n, n), 0, &index, &map);
      EXPECT_LE(n, max_load * index.places());
      ExpectHolds(index, map, DistinctIds(200, n + 1));
    }
  }
}

TEST_F(KeyIndexTest, ConsecutiveKeysAndLargeRows) {
  KeyIndex index(&allocator_);
  Map map;
  std::vector<int64_t> keys(3000);
  for (int64_t i = 0; i < 3000; ++i) keys[i] = i - 1500;
  Insert(keys, int64_t{1} << 39, &index, &map);
  ExpectHolds(index, map, {1500, -1501});
}

// All keys have the same home and the same digest: one long run of buckets, which wraps around the end.
TEST_F(KeyIndexTest, EqualDigestsAndBuckets) {
  for (const uint64_t high : {uint64_t{0}, uint64_t{0xffffffff}, uint64_t{0x80000000}}) {
    for (const uint64_t low : {uint64_t{0}, uint64_t{0xff000000}}) {
      KeyIndex index(&allocator_);
      Map map;
      std::vector<int64_t> keys, others;
      for (uint64_t i = 0; i < 150; ++i) {
        keys.push_back(KeyWithHash(high << 32 | (low + i)));
        ASSERT_EQ(Mix64(keys.back()), high << 32 | (low + i));
        others.push_back(KeyWithHash(high << 32 | (low + 1000 + i)));
      }
      Insert(keys, 0, &index, &map);
      ExpectHolds(index, map, others);
      const std::vector<int64_t> first(keys.begin(), keys.begin() + 100);
      const std::vector<int64_t> rows = RowsIn(map, first);
      EXPECT_EQ(Erase(first, &index, &map), rows);
      ExpectHolds(index, map, keys);
      Insert(others, 1000, &index, &map);
      ExpectHolds(index, map, keys);
    }
  }
}

// Digests in one bucket that differ in one bit or by one.
TEST_F(KeyIndexTest, AllDigestsInOneBucket) {
  KeyIndex index(&allocator_);
  Map map;
  std::vector<int64_t> keys;
  for (uint64_t byte = 0; byte < 256; ++byte) keys.push_back(KeyWithHash(byte << 24));
  ASSERT_TRUE(index.Reserve(nullptr, 1000).ok());
  for (int64_t i = 0; i < 256; i += 8) {
    Insert({keys.begin() + i, keys.begin() + i + 8}, i, &index, &map);
    ExpectHolds(index, map, keys);
  }
}

// Every place is occupied: a search ends only after all buckets.
TEST_F(KeyIndexTest, AFullIndex) {
  KeyIndex index(&allocator_, 1.0);
  Map map;
  const std::vector<int64_t> keys = DistinctIds(64, 5);
  Insert(keys, 0, &index, &map);
  ASSERT_EQ(index.places(), 64);
  ExpectHolds(index, map, DistinctIds(50, 6));
  EXPECT_EQ(Erase(DistinctIds(10, 6), &index, &map), std::vector<int64_t>(10, kAbsentRow));
  Erase({keys.begin(), keys.begin() + 3}, &index, &map);
  Insert(DistinctIds(3, 6), 100, &index, &map);
  ExpectHolds(index, map, keys);
}

TEST_F(KeyIndexTest, HighLoads) {
  for (const double max_load : {0.95, 0.98}) {
    KeyIndex index(&allocator_, max_load);
    Map map;
    Insert(DistinctIds(2000, 7), 0, &index, &map);
    EXPECT_LT(index.places() * (max_load - 0.01), 2000);
    ExpectHolds(index, map, DistinctIds(300, 8));
  }
}

TEST_F(KeyIndexTest, RowsBelowZeroArePassedOver) {
  KeyIndex index(&allocator_);
  ASSERT_TRUE(index.Reserve(nullptr, 10).ok());
  DeviceArray<int64_t> keys({5, 6, 7});
  DeviceArray<int64_t> rows({2, -1, 0});
  ASSERT_TRUE(InsertKeys(nullptr, index.view(), keys.data(), rows.data(), 3).ok());
  EXPECT_EQ(Find(index, {5, 6, 7}), (std::vector<int64_t>{2, kAbsentRow, 0}));
}

TEST_F(KeyIndexTest, RepeatedKeysAreFound) {
  KeyIndex index(&allocator_);
  Map map;
  Insert(DistinctIds(50, 1), 0, &index, &map);
  const std::vector<int64_t> keys = ZipfIds(2000, 100, 1.1, 3);
  EXPECT_EQ(Find(index, keys), RowsIn(map, keys));
  const std::vector<int64_t> same(500, DistinctIds(1, 1)[0]);
  EXPECT_EQ(Find(index, same), std::vector<int64_t>(500, 0));
}

TEST_F(KeyIndexTest, RandomChanges) {
  std::mt19937_64 random(11);
  KeyIndex index(&allocator_);
  Map map;
  const std::vector<int64_t> universe = DistinctIds(1500, 9);
  int64_t next_row = 0;
  for (int round = 0; round < 12; ++round) {
    std::vector<int64_t> to_insert, to_erase;
    const int fill = round % 4 == 3 ? 15 : 60;  // percent
    for (const int64_t key : universe) {
      const bool wanted = static_cast<int>(random() % 100) < fill;
      if (wanted && map.count(key) == 0) to_insert.push_back(key);
      if (!wanted && random() % 2 == 0) to_erase.push_back(key);
    }
    const std::vector<int64_t> rows = RowsIn(map, to_erase);
    EXPECT_EQ(Erase(to_erase, &index, &map), rows);
    Insert(to_insert, next_row, &index, &map);
    next_row += static_cast<int64_t>(to_insert.size());
    ExpectHolds(index, map, universe);
  }
}

// As many keys are inserted as erased: places of erased keys do not accumulate, and the index does not grow.
TEST_F(KeyIndexTest, TurnoverAtFullLoadKeepsThePlaces) {
  KeyIndex index(&allocator_);
  Map map;
  ASSERT_TRUE(index.Reserve(nullptr, 720).ok());
  const int64_t places = index.places();
  std::vector<int64_t> keys = DistinctIds(720, 0);
  Insert(keys, 0, &index, &map);
  bool was_cleaned = false;
  for (int round = 1; round <= 12; ++round) {
    const int64_t begin = round % 6 * 120;
    Erase({keys.begin() + begin, keys.begin() + begin + 120}, &index, &map);
    const int64_t erased = index.erased();
    const std::vector<int64_t> fresh = DistinctIds(120, round);
    Insert(fresh, round * 1000, &index, &map);
    std::copy(fresh.begin(), fresh.end(), keys.begin() + begin);
    was_cleaned |= index.erased() < erased;
    EXPECT_EQ(index.places(), places);
    EXPECT_LE(index.size() + index.erased(), places);
    ExpectHolds(index, map, DistinctIds(120, round - 1));
  }
  EXPECT_TRUE(was_cleaned);
}

uint32_t TombstonesIn(const KeyIndex& index) {
  DeviceArray<uint32_t> sum({0});
  EXPECT_TRUE(CountTombstones(nullptr, index.view(), sum.data()).ok());
  return sum.Fetch()[0];
}

// Erasures of random sizes, so that a count arrives some of them later.
TEST_F(KeyIndexTest, TombstonesAreNeverMoreThanErased) {
  std::mt19937_64 random(3);
  KeyIndex index(&allocator_);
  Map map;
  ASSERT_TRUE(index.Reserve(nullptr, 720).ok());
  std::vector<int64_t> keys = DistinctIds(720, 0);
  Insert(keys, 0, &index, &map);
  uint32_t most = 0;
  for (int round = 1; round <= 60; ++round) {
    const auto n = static_cast<int64_t>(random() % (random() % 2 == 0 ? 20 : 300));
    std::shuffle(keys.begin(), keys.end(), random);
    Erase({keys.end() - n, keys.end()}, &index, &map);
    keys.resize(keys.size() - n);
    ASSERT_LE(TombstonesIn(index), index.erased());
    // A few more while the count is on its way.
    const auto few = static_cast<int64_t>(random() % 16);
    Erase({keys.end() - few, keys.end()}, &index, &map);
    keys.resize(keys.size() - few);
    ASSERT_TRUE(index.Reserve(nullptr, 720).ok());
    ASSERT_LE(TombstonesIn(index), index.erased());
    most = std::max(most, TombstonesIn(index));
    const auto room = static_cast<int64_t>(720 - keys.size());
    const std::vector<int64_t> fresh = DistinctIds(random() % 2 == 0 ? room : room / 3, round);
    Insert(fresh, round * 1000, &index, &map);
    keys.insert(keys.end(), fresh.begin(), fresh.end());
    ASSERT_LE(TombstonesIn(index), index.erased());
  }
  EXPECT_GT(most, 0u);
  ExpectHolds(index, map, DistinctIds(100, 1));
}

// Keys of buckets with room leave free places: however many are erased, the index stays where it is.
TEST_F(KeyIndexTest, FreePlacesAreNoReasonToMoveKeys) {
  KeyIndex index(&allocator_);
  Map map;
  ASSERT_TRUE(index.Reserve(nullptr, 1440).ok());
  Insert(DistinctIds(600, 0), 0, &index, &map);
  const longlong2* const slots = index.view().slots;
  for (int round = 1; round <= 20; ++round) {
    Insert(DistinctIds(120, round), round * 1000, &index, &map);
    Erase(DistinctIds(120, round), &index, &map);
    EXPECT_EQ(index.view().slots, slots);
  }
  ExpectHolds(index, map, DistinctIds(120, 1));
}

TEST_F(KeyIndexTest, GrowthIsByHalfAtLeast) {
  KeyIndex index(&allocator_);
  Map map;
  int growths = 0;
  for (int64_t i = 0; i < 60; ++i) {
    const int64_t places = index.places();
    Insert(DistinctIds(50, 100 + i), i * 50, &index, &map);
    EXPECT_LE(index.size(), 0.9 * index.places());
    growths += index.places() != places;
  }
  ExpectHolds(index, map, DistinctIds(100, 1));
  EXPECT_LE(growths, 13);
  const int64_t bytes = index.bytes();
  EXPECT_EQ(bytes, index.places() * 17);
  ASSERT_TRUE(index.Reserve(nullptr, 10).ok());
  EXPECT_EQ(index.bytes(), bytes);
  KeyIndex moved = std::move(index);
  ExpectHolds(moved, map, {});
}

// A key with this home, one of 2^20 for each.
int64_t KeyAtHome(uint32_t home, uint32_t buckets, uint64_t number) {
  const uint64_t high = ((uint64_t{home} << 32) + buckets - 1) / buckets;
  return KeyWithHash(high << 32 | (number * 0x9e3779b9u & 0xffffffffu));
}

// Keys of few homes: runs of full buckets, of which one goes on from the last bucket to the first. Every
// piece of 64 buckets that moves ends within one, and the next begins with a home.
TEST_F(KeyIndexTest, GrowsPieceByPiece) {
  constexpr int64_t kKeys = 4000;
  std::mt19937_64 random(5);
  KeyIndex index(&allocator_);
  Map map;
  ASSERT_TRUE(index.Reserve(nullptr, kKeys).ok());
  const uint32_t buckets = index.view().buckets;
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < kKeys + 900; ++i) {
    const auto home = static_cast<uint32_t>(i * 8 % buckets / 8 * 8);
    keys.push_back(KeyAtHome(home == 0 ? buckets - 1 : home, buckets, i));
  }
  Insert({keys.begin(), keys.begin() + kKeys}, 0, &index, &map);
  int pieces = 0;
  uint32_t moved = 0;
  int64_t next = kKeys;
  while (next < static_cast<int64_t>(keys.size())) {
    const bool grew = index.view().old.buckets > 0;
    Insert({keys.begin() + next, keys.begin() + next + 30}, next, &index, &map);
    next += 30;
    const KeyIndexView view = index.view();
    if (view.old.buckets > 0) {
      EXPECT_EQ(view.old.buckets, buckets);
      EXPECT_LE(view.moved, (grew ? moved : 0) + 64);
      EXPECT_EQ(index.bytes(), 17 * 16 * (int64_t{view.buckets} + buckets));
      moved = view.moved;
      ++pieces;
    }
    std::vector<int64_t> some;
    std::sample(keys.begin(), keys.end(), std::back_inserter(some), 400, random);
    EXPECT_EQ(Find(index, some), RowsIn(map, some));
    some.resize(8);
    const std::vector<int64_t> rows = RowsIn(map, some);
    EXPECT_EQ(Erase(some, &index, &map), rows);
  }
  EXPECT_GE(pieces, 4);
  EXPECT_EQ(index.view().old.buckets, 0u);
  EXPECT_EQ(index.bytes(), 17 * index.places());
  ExpectHolds(index, map, keys);
}

// Fewer places are free beside keys that have not moved than keys are new: all move.
TEST_F(KeyIndexTest, ManyNewKeysWaitForTheMove) {
  for (const double max_load : {0.9, 1.0}) {
    KeyIndex index(&allocator_, max_load);
    Map map;
    ASSERT_TRUE(index.Reserve(nullptr, 1600).ok());
    const auto full = static_cast<int64_t>(max_load * index.places());
    Insert(DistinctIds(full, 1), 0, &index, &map);
    Insert(DistinctIds(20, 2), full, &index, &map);
    EXPECT_EQ(index.view().old.buckets > 0, max_load < 1.0);
    Insert(DistinctIds(300, 3), full + 20, &index, &map);
    EXPECT_EQ(index.view().old.buckets, 0u);
    ExpectHolds(index, map, DistinctIds(100, 4));
  }
}

// Fails for allocations of more than `budget` bytes.
class LimitedAllocator : public AsyncAllocator {
 public:
  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override {
    if (bytes > budget) return ResourceExhausted("more than ", budget, " bytes");
    return AsyncAllocator::Allocate(stream, bytes);
  }
  int64_t budget = 0;
};

TEST_F(KeyIndexTest, WithoutMemoryNothingChanges) {
  LimitedAllocator allocator;
  KeyIndex index(&allocator);
  EXPECT_EQ(index.Reserve(nullptr, 1).code(), StatusCode::kResourceExhausted);
  allocator.budget = 1 << 20;
  Map map;
  const std::vector<int64_t> keys = DistinctIds(1000, 2);
  Insert(keys, 0, &index, &map);
  const int64_t bytes = index.bytes();
  for (const int64_t n : {int64_t{100'000}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(index.Reserve(nullptr, n).code(), StatusCode::kResourceExhausted) << n;
    EXPECT_EQ(index.bytes(), bytes);
  }
  // Enough memory for the request, but not for growing by half.
  allocator.budget = bytes + bytes / 4;
  ASSERT_TRUE(index.Reserve(nullptr, 1100).ok());
  EXPECT_LE(index.bytes(), allocator.budget);
  ExpectHolds(index, map, DistinctIds(100, 3));
  // It is no error either if the places of erased keys cannot be freed.
  allocator.budget = 0;
  Erase(keys, &index, &map);
  ASSERT_TRUE(index.Reserve(nullptr, 1000).ok());
  Insert(DistinctIds(1000, 4), 0, &index, &map);
  ExpectHolds(index, map, keys);
}

}  // namespace
}  // namespace sok
