// Erasing keeps all other ids reachable, in any order of insertions and erasures.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/testing/test_ids.h"
#include "cc/index/id_index.h"
#include "cc/index/testing/id_index_reference.h"

namespace sok {
namespace {

void ExpectSame(const IdIndex& index, const ReferenceIdIndex& reference, const std::vector<int64_t>& ids) {
  ASSERT_EQ(index.size(), reference.size());
  std::vector<int64_t> rows(ids.size());
  std::vector<int64_t> expected(ids.size());
  index.Find(ids, Span<int64_t>(rows));
  reference.Find(ids, Span<int64_t>(expected));
  ASSERT_EQ(rows, expected);
}

// Inserts and erases random ids of `pool`, with a hundred changes between comparisons.
void ComeAndGo(const std::vector<int64_t>& pool, int changes, uint64_t seed) {
  std::mt19937_64 random(seed);
  IdIndex index;
  ReferenceIdIndex reference;
  for (int change = 0; change < changes; ++change) {
    const std::vector<int64_t> id = {pool[random() % pool.size()]};
    std::vector<int64_t> row(1);
    reference.Find(id, Span<int64_t>(row));
    if (row[0] != ReferenceIdIndex::kAbsent || random() % 4 == 0) {
      ASSERT_EQ(index.Erase(id[0]), reference.Erase(id[0]));
    } else {
      row[0] = change;
      ASSERT_TRUE(index.Insert(id, row).ok());
      reference.Insert(id, row);
    }
    if (change % 100 == 0) ExpectSame(index, reference, pool);
  }
  ExpectSame(index, reference, pool);
}

TEST(IdIndexEraseTest, RandomIds) { ComeAndGo(DistinctIds(400, 1), 20000, 1); }

TEST(IdIndexEraseTest, HostileIds) { ComeAndGo(HostileIds(), 5000, 2); }

// Ids whose home bucket is the last of any small table: runs of full buckets wrap around.
TEST(IdIndexEraseTest, RunsAroundTheEnd) {
  std::vector<int64_t> pool;
  for (int64_t id = 0; pool.size() < 12; ++id) {
    if (Mix64(id) >> 60 == 15) pool.push_back(id);
  }
  for (uint64_t seed = 0; seed < 20; ++seed) ComeAndGo(pool, 500, seed);
}

// All ids have the same home bucket at any table size: one long run.
TEST(IdIndexEraseTest, OneLongRun) {
  std::vector<int64_t> pool;
  for (int64_t id = 0; pool.size() < 40; ++id) {
    if (Mix64(id) >> 50 == 77) pool.push_back(id);
  }
  ComeAndGo(pool, 3000, 3);
}

TEST(IdIndexEraseTest, AbsentIdsAreNotErased) {
  IdIndex index;
  EXPECT_FALSE(index.Erase(0));
  const std::vector<int64_t> ids = {3};
  ASSERT_TRUE(index.Insert(ids, ids).ok());
  EXPECT_FALSE(index.Erase(0));
  EXPECT_TRUE(index.Erase(3));
  EXPECT_FALSE(index.Erase(3));
  EXPECT_EQ(index.size(), 0);
}

TEST(IdIndexEraseTest, ErasedPlacesAreUsedAgain) {
  IdIndex index;
  ASSERT_TRUE(index.Reserve(100).ok());
  const int64_t bytes = index.bytes();
  for (int64_t id = 0; id < 10000; ++id) {
    const std::vector<int64_t> one = {id};
    ASSERT_TRUE(index.Insert(one, one).ok());
    if (id >= 50) {
      ASSERT_TRUE(index.Erase(id - 50));
    }
  }
  EXPECT_EQ(index.size(), 50);
  EXPECT_EQ(index.bytes(), bytes);
}

}  // namespace
}  // namespace sok
