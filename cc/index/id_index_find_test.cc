// Every inserted id is found with its row, and no other id is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/testing/test_ids.h"
#include "cc/base/testing/vector_levels.h"
#include "cc/index/id_index.h"
#include "cc/index/testing/id_index_reference.h"

namespace sok {
namespace {

std::vector<int64_t> Find(const IdIndex& index, const std::vector<int64_t>& ids) {
  std::vector<int64_t> rows(ids.size(), -7);
  index.Find(ids, Span<int64_t>(rows));
  return rows;
}

std::vector<int64_t> Find(const ReferenceIdIndex& index, const std::vector<int64_t>& ids) {
  std::vector<int64_t> rows(ids.size(), -7);
  index.Find(ids, Span<int64_t>(rows));
  return rows;
}

TEST(IdIndexFindTest, AnEmptyIndexFindsNothing) {
  const IdIndex index;
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(index.bytes(), 0);
  EXPECT_EQ(Find(index, HostileIds()), std::vector<int64_t>(HostileIds().size(), IdIndex::kAbsent));
  EXPECT_TRUE(Find(index, {}).empty());
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
  std::vector<int64_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  IdIndex index;
  ASSERT_TRUE(index.Insert(ids, rows).ok());
  for (const int64_t n : {0, 1, 2, 31, 32, 33, 63, 64, 65, 1000}) {
    EXPECT_EQ(Find(index, {ids.begin(), ids.begin() + n}),
              std::vector<int64_t>(rows.begin(), rows.begin() + n));
  }
}

// Ids beyond rows.size() are not looked up, however many there are.
TEST(IdIndexFindTest, RowsOfTheFirstIdsOnly) {
  const std::vector<int64_t> ids = DistinctIds(3000, 1);
  std::vector<int64_t> numbers(ids.size());
  std::iota(numbers.begin(), numbers.end(), 0);
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
  std::vector<int64_t> sequence(5000);
  std::iota(sequence.begin(), sequence.end(), -2500);
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
    if (Mix64(static_cast<uint64_t>(id)) >> 54 == 1000) ids.push_back(id);
  }
  const std::vector<int64_t> present(ids.begin(), ids.begin() + 2000);
  std::vector<int64_t> rows(present.size());
  std::iota(rows.begin(), rows.end(), 0);
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

}  // namespace
}  // namespace sok
