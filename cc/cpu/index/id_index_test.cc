// Every inserted id is found with its row, and no other id is found.
#include "cc/cpu/index/id_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/testing/test_ids.h"
#include "cc/base/testing/vector_levels.h"

namespace sok {
namespace {

// IdIndex's contract on a standard map.
class ReferenceIdIndex {
 public:
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }

  void Find(Span<const int64_t> ids, Span<int64_t> rows) const {
    for (int64_t i = 0; i < ids.size(); ++i) {
      const auto found = rows_.find(ids[i]);
      rows[i] = found == rows_.end() ? IdIndex::kAbsent : found->second;
    }
  }

  void Insert(Span<const int64_t> ids, Span<const int64_t> rows) {
    for (int64_t i = 0; i < ids.size(); ++i) rows_[ids[i]] = rows[i];
  }

  bool Erase(int64_t id) { return rows_.erase(id) == 1; }

 private:
  std::unordered_map<int64_t, int64_t> rows_;
};

template <typename Index>
std::vector<int64_t> Find(const Index& index, const std::vector<int64_t>& ids) {
  std::vector<int64_t> rows(ids.size(), -7);
  index.Find(ids, Span<int64_t>(rows));
  return rows;
}

std::vector<int64_t> Numbers(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers;
  for (int64_t i = begin; i < end; ++i) numbers.push_back(i);
  return numbers;
}

TEST(IdIndexFindTest, AnEmptyIndexFindsNothing) {
  const IdIndex index;
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(index.bytes(), 0);
  EXPECT_EQ(Find(index, HostileIds()), std::vector<int64_t>(HostileIds().size(), IdIndex::kAbsent));
  EXPECT_TRUE(Find(index, {}).empty());
  index.ForEach([](int64_t, int64_t) { FAIL(); });
}

TEST(IdIndexFindTest, EveryInt64IsALegalId) {
  const std::vector<int64_t> ids = HostileIds();
  // One at a time, while the others are still absent.
  IdIndex index;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<int64_t> row = {static_cast<int64_t>(100 + i)};
    ASSERT_TRUE(index.Insert(Span<const int64_t>(&ids[i], 1), row).ok());
    std::vector<int64_t> expected(ids.size(), IdIndex::kAbsent);
    for (size_t j = 0; j <= i; ++j) expected[j] = 100 + j;
    EXPECT_EQ(Find(index, ids), expected);
  }
  EXPECT_EQ(index.size(), static_cast<int64_t>(ids.size()));
}

TEST(IdIndexFindTest, FreeSlotsDoNotLookLikeId0) {
  IdIndex index;
  const std::vector<int64_t> ids = {5, -1};
  const std::vector<int64_t> rows = {0, int64_t{1} << 40};
  ASSERT_TRUE(index.Insert(ids, rows).ok());
  EXPECT_EQ(Find(index, {0, 5, -1, 0}), (std::vector<int64_t>{-1, 0, int64_t{1} << 40, -1}));
}

// Batches shorter than, equal to and longer than the prefetch distance.
TEST(IdIndexFindTest, BatchesOfAnyLength) {
  const std::vector<int64_t> ids = DistinctIds(1000, 1);
  const std::vector<int64_t> rows = Numbers(0, 1000);
  IdIndex index;
  ASSERT_TRUE(index.Insert(ids, rows).ok());
  for (const int64_t n : {0, 1, 2, 31, 32, 33, 63, 64, 65, 1000}) {
    EXPECT_EQ(Find(index, {ids.begin(), ids.begin() + n}), Numbers(0, n));
  }
}

// Ids beyond rows.size() are not looked up, however many there are.
TEST(IdIndexFindTest, RowsOfTheFirstIdsOnly) {
  const std::vector<int64_t> ids = DistinctIds(3000, 1);
  const std::vector<int64_t> numbers = Numbers(0, 3000);
  IdIndex index;
  ASSERT_TRUE(index.Insert(ids, numbers).ok());
  for (const VectorLevel level : VectorLevels()) {
    const WithVectorLevel with_level(level);
    for (const int64_t n : {0, 1, 63, 64, 65, 1023, 1024, 1025, 2500}) {
      for (const int64_t beyond : {0, 1, 63, 64, 65, 400}) {
        std::vector<int64_t> rows(n + 1, -7);
        index.Find(Span<const int64_t>(ids.data(), n + beyond), Span<int64_t>(rows.data(), n));
        EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + n, numbers.begin())) << n << " " << beyond;
        EXPECT_EQ(rows[n], -7);
      }
    }
  }
}

TEST(IdIndexFindTest, AgreesWithTheReference) {
  struct Case {
    const char* name;
    std::vector<int64_t> present;
    std::vector<int64_t> asked;
  };
  const std::vector<int64_t> sequence = Numbers(-2500, 2500);
  // Multiples of a power of two: the same low bits throughout.
  std::vector<int64_t> multiples;
  for (const int64_t i : sequence) multiples.push_back(i * (int64_t{1} << 40));
  const std::vector<Case> cases = {{"random", DistinctIds(5000, 1), RandomIds(20000, 8000, 2)},
                                   {"skewed", sequence, ZipfIds(20000, 6000, 1.05, 3)},
                                   {"sequence", sequence, sequence},
                                   {"multiples", multiples, multiples},
                                   {"one id", {42}, std::vector<int64_t>(1000, 42)},
                                   {"all absent", DistinctIds(100, 4), DistinctIds(1000, 5)}};
  for (const Case& c : cases) {
    std::vector<int64_t> rows(c.present.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = 3 * static_cast<int64_t>(i) + 1;
    IdIndex index;
    ReferenceIdIndex reference;
    ASSERT_TRUE(index.Insert(c.present, rows).ok());
    reference.Insert(c.present, rows);
    EXPECT_EQ(Find(index, c.asked), Find(reference, c.asked)) << c.name;
    EXPECT_EQ(Find(index, c.present), rows) << c.name;
  }
}

// All ids have the same home bucket, so more ids overflow than one block of a search holds.
TEST(IdIndexFindTest, IdsThatAreNotInTheirHomeBuckets) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; ids.size() < 4000; ++id) {
    if ((Mix64(static_cast<uint64_t>(id)) & 0x3ff) == 1000) ids.push_back(id);
  }
  const std::vector<int64_t> present(ids.begin(), ids.begin() + 2000);
  const std::vector<int64_t> rows = Numbers(0, 2000);
  IdIndex index;
  ASSERT_TRUE(index.Insert(present, rows).ok());
  std::vector<int64_t> expected = rows;
  expected.resize(ids.size(), IdIndex::kAbsent);
  EXPECT_EQ(Find(index, ids), expected);
}

TEST(IdIndexFindTest, AMovedIndexKeepsItsIds) {
  IdIndex index;
  const std::vector<int64_t> ids = {7, 8};
  const std::vector<int64_t> rows = {1, 2};
  ASSERT_TRUE(index.Insert(ids, rows).ok());
  IdIndex moved = std::move(index);
  EXPECT_EQ(Find(moved, ids), rows);
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(Find(index, ids), (std::vector<int64_t>{-1, -1}));
  index = std::move(moved);
  EXPECT_EQ(Find(index, ids), rows);
}

void ExpectSame(const IdIndex& index, const ReferenceIdIndex& reference, const std::vector<int64_t>& ids) {
  ASSERT_EQ(index.size(), reference.size());
  ASSERT_EQ(Find(index, ids), Find(reference, ids));
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
    if (row[0] != IdIndex::kAbsent || random() % 4 == 0) {
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

// Ids whose home bucket is the last of a small index with a power of two buckets: they overflow behind it.
TEST(IdIndexEraseTest, RunsPastTheEnd) {
  std::vector<int64_t> pool;
  for (int64_t id = 0; pool.size() < 12; ++id) {
    if ((Mix64(id) & 15) == 15) pool.push_back(id);
  }
  for (uint64_t seed = 0; seed < 20; ++seed) ComeAndGo(pool, 500, seed);
}

// All ids have the same home bucket at any table size: one long run.
TEST(IdIndexEraseTest, OneLongRun) {
  std::vector<int64_t> pool;
  for (int64_t id = 0; pool.size() < 40; ++id) {
    if ((Mix64(id) & 0x3fff) == 77) pool.push_back(id);
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

TEST(IdIndexGrowthTest, ManyDoublingsInUnevenSteps) {
  const std::vector<int64_t> ids = DistinctIds(100000, 1);
  IdIndex index;
  int64_t count = 0;
  for (int64_t step = 1; count < 100000; step = step * 3 / 2 + 1) {
    const int64_t n = std::min<int64_t>(step, 100000 - count);
    ASSERT_TRUE(index.Insert(Span<const int64_t>(&ids[count], n), Numbers(count, count + n)).ok());
    count += n;
    ASSERT_EQ(index.size(), count);
    ASSERT_EQ(Find(index, {ids.begin(), ids.begin() + count}), Numbers(0, count));
  }
}

// An index without ids has all buckets that ids need later.
TEST(IdIndexGrowthTest, ReservedRoomIsFilledWithoutGrowth) {
  for (const int64_t n : {1, 8, 9, 1000, 1024, 1025}) {
    IdIndex index;
    ASSERT_TRUE(index.Reserve(n).ok());
    const int64_t bytes = index.bytes();
    EXPECT_GE(bytes, 40 * n);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, n / 2), {n / 2, n}}) {
      ASSERT_TRUE(index.Insert(Numbers(begin, end), Numbers(begin, end)).ok());
      EXPECT_EQ(index.bytes(), bytes) << n;
    }
    EXPECT_EQ(Find(index, Numbers(0, n)), Numbers(0, n));
  }
}

TEST(IdIndexGrowthTest, ReserveNeverShrinks) {
  IdIndex index;
  ASSERT_TRUE(index.Reserve(10000).ok());
  const int64_t bytes = index.bytes();
  ASSERT_TRUE(index.Reserve(5).ok());
  ASSERT_TRUE(index.Reserve(-5).ok());
  EXPECT_EQ(index.bytes(), bytes);
}

TEST(IdIndexGrowthTest, ForEachVisitsEveryIdOnce) {
  IdIndex index;
  std::vector<int64_t> ids = DistinctIds(3000, 2);
  for (const int64_t id : HostileIds()) ids.push_back(id);
  ASSERT_TRUE(index.Insert(ids, Numbers(0, ids.size())).ok());
  std::map<int64_t, int64_t> visited;
  index.ForEach([&](int64_t id, int64_t row) { EXPECT_TRUE(visited.emplace(id, row).second); });
  ASSERT_EQ(visited.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(visited[ids[i]], static_cast<int64_t>(i));
}

// Ids come and go in small steps while the index grows. Some have the first or the last bucket as their home
// whenever the number of buckets is a power of two, and make runs of full buckets there, which go past the
// end.
TEST(IdIndexGrowthTest, IdsComeAndGoWhileItGrows) {
  std::vector<int64_t> at_borders;
  for (int64_t id = 0; at_borders.size() < 600; ++id) {
    const uint64_t last = Mix64(static_cast<uint64_t>(id)) & 0xffff;
    if (last < 3 || last >= 0xfffd) at_borders.push_back(id);
  }
  std::vector<int64_t> pool = DistinctIds(200000, 3);
  pool.insert(pool.end(), at_borders.begin(), at_borders.end());
  std::mt19937_64 random(5);
  std::shuffle(pool.begin(), pool.end(), random);
  // Early, so that their runs are long beside the buckets.
  std::shuffle(at_borders.begin(), at_borders.end(), random);
  for (size_t i = 0; i < at_borders.size(); ++i) {
    std::iter_swap(std::find(pool.begin(), pool.end(), at_borders[i]), pool.begin() + 5 * i);
  }
  IdIndex index;
  ReferenceIdIndex reference;
  for (size_t first = 0; first < pool.size();) {
    const size_t count = std::min<size_t>(pool.size() - first, random() % (20 + first / 16));
    const std::vector<int64_t> ids(pool.begin() + first, pool.begin() + first + count);
    const std::vector<int64_t> rows = Numbers(first, first + count);
    ASSERT_TRUE(index.Insert(ids, rows).ok());
    reference.Insert(ids, rows);
    first += count;
    for (size_t i = 0; i < count / 10; ++i) {
      const int64_t id = pool[random() % first];
      ASSERT_EQ(index.Erase(id), reference.Erase(id));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSame(index, reference, at_borders));
    if (random() % 16 == 0) {
      ASSERT_NO_FATAL_FAILURE(ExpectSame(index, reference, pool));
      int64_t visited = 0;
      index.ForEach([&](int64_t, int64_t) { ++visited; });
      ASSERT_EQ(visited, index.size());
    }
  }
  ExpectSame(index, reference, pool);
}

// No insertion adds memory in proportion to the index.
TEST(IdIndexGrowthTest, EachInsertionAddsInProportionToItsIds) {
  IdIndex index;
  for (int64_t count = 0; count < 1 << 20; count += 1000) {
    const int64_t bytes = index.bytes();
    ASSERT_TRUE(index.Insert(Numbers(count, count + 1000), Numbers(count, count + 1000)).ok());
    ASSERT_LE(index.bytes() - bytes, 40 * 1000) << count;
  }
}

TEST(IdIndexGrowthTest, TooLittleMemoryIsAnErrorAndChangesNothing) {
  IdIndex index;
  const std::vector<int64_t> ids = HostileIds();
  ASSERT_TRUE(index.Insert(ids, Numbers(0, ids.size())).ok());
  const int64_t bytes = index.bytes();
  for (const int64_t n : {int64_t{1} << 45, int64_t{1} << 60, INT64_MAX}) {
    const Status status = index.Reserve(n);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find(std::to_string(n)), std::string::npos) << status.message();
  }
  EXPECT_EQ(index.bytes(), bytes);
  EXPECT_EQ(Find(index, ids), Numbers(0, ids.size()));
}

}  // namespace
}  // namespace sok
