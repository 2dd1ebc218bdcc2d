#include "cc/cpu/table/row_directory.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "cc/base/testing/test_ids.h"

namespace sok {
namespace {

std::vector<int64_t> Insert(RowDirectory* directory, const std::vector<int64_t>& ids) {
  const int64_t count = static_cast<int64_t>(ids.size());
  EXPECT_TRUE(directory->Reserve(directory->size() + count, directory->RowLimitWith(count)).ok());
  std::vector<int64_t> rows(ids.size());
  directory->NextRows(Span<int64_t>(rows));
  EXPECT_TRUE(directory->Insert(ids, rows).ok());
  return rows;
}

void Erase(RowDirectory* directory, int64_t row) {
  ASSERT_TRUE(directory->PrepareErase(1).ok());
  directory->Erase(row);
}

TEST(RowDirectoryTest, TheLastFreedRowIsReusedFirst) {
  RowDirectory directory;
  EXPECT_EQ(Insert(&directory, {10, 11, 12, 13}), (std::vector<int64_t>{0, 1, 2, 3}));
  Erase(&directory, 1);
  Erase(&directory, 3);
  EXPECT_EQ(directory.size(), 2);
  EXPECT_EQ(directory.row_limit(), 4);
  EXPECT_EQ(directory.RowLimitWith(2), 4);
  EXPECT_EQ(directory.RowLimitWith(5), 7);
  EXPECT_EQ(Insert(&directory, {20, 21, 22}), (std::vector<int64_t>{3, 1, 4}));
  EXPECT_EQ(directory.id(3), 20);
}

TEST(RowDirectoryTest, ReferencesAreRowNumbersUntilARowIsErased) {
  RowDirectory directory;
  Insert(&directory, {10, 11});
  EXPECT_FALSE(directory.has_erased());
  EXPECT_EQ(directory.Reference(1), 1);
  Erase(&directory, 1);
  EXPECT_FALSE(directory.IsCurrent(1)) << "free";
  EXPECT_TRUE(directory.IsCurrent(0));
  Insert(&directory, {12});
  EXPECT_FALSE(directory.IsCurrent(1)) << "belongs to another id";
  const int64_t reference = directory.Reference(1);
  EXPECT_NE(reference, 1);
  EXPECT_EQ(RowOf(reference), 1);
  EXPECT_TRUE(directory.IsCurrent(reference));
  // Rows made later have generations too.
  EXPECT_EQ(Insert(&directory, std::vector<int64_t>{30, 31}), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(directory.Reference(3), 3);
}

TEST(RowDirectoryTest, ReferencesStayPositiveWhenGenerationsWrapAround) {
  const uint32_t last = kGenerationMask;
  EXPECT_EQ(MakeRowReference(kMaxRows - 1, last), (int64_t{1} << kReferenceBits) - 1);
  EXPECT_GT(MakeRowReference(kMaxRows - 1, last) | ((kMaxParts - 1) << kReferenceBits), 0);
  EXPECT_EQ(RowOf(MakeRowReference(kMaxRows - 1, last)), kMaxRows - 1);
  EXPECT_EQ(NextGeneration(last), 0u);
}

// The expected contents of a directory, in maps.
struct ReferenceDirectory {
  std::map<int64_t, int64_t> row_of;
  std::map<int64_t, int64_t> id_of;
  std::map<int64_t, std::vector<int64_t>> old_references;  // by row: those of erased ids

  void Expect(const RowDirectory& directory) const {
    ASSERT_EQ(directory.size(), static_cast<int64_t>(row_of.size()));
    for (int64_t row = 0; row < directory.row_limit(); ++row) {
      const auto found = id_of.find(row);
      ASSERT_EQ(directory.in_use(row), found != id_of.end()) << row;
      if (found != id_of.end()) {
        ASSERT_EQ(directory.id(row), found->second);
        ASSERT_TRUE(directory.IsCurrent(directory.Reference(row)));
      }
    }
    for (const auto& [row, references] : old_references) {
      for (const int64_t reference : references) ASSERT_FALSE(directory.IsCurrent(reference)) << row;
    }
  }
};

TEST(RowDirectoryTest, RandomStreamsEqualMaps) {
  for (const uint64_t seed : {1, 2, 3}) {
    std::mt19937_64 random(seed);
    RowDirectory directory;
    ReferenceDirectory expected;
    std::vector<int64_t> pool = DistinctIds(200, seed);
    const std::vector<int64_t> hostile = HostileIds();
    pool.insert(pool.end(), hostile.begin(), hostile.end());
    for (int round = 0; round < 200; ++round) {
      std::vector<int64_t> absent;
      for (const int64_t id : pool) {
        if (expected.row_of.count(id) == 0 && random() % 8 == 0) absent.push_back(id);
      }
      const std::vector<int64_t> rows = Insert(&directory, absent);
      for (size_t i = 0; i < absent.size(); ++i) {
        ASSERT_EQ(expected.id_of.count(rows[i]), 0u) << "taken already";
        expected.row_of[absent[i]] = rows[i];
        expected.id_of[rows[i]] = absent[i];
      }
      for (const int64_t id : pool) {
        const auto found = expected.row_of.find(id);
        if (found == expected.row_of.end() || random() % 6 != 0) continue;
        const int64_t row = found->second;
        expected.old_references[row].push_back(directory.Reference(row));
        Erase(&directory, row);
        expected.id_of.erase(row);
        expected.row_of.erase(found);
      }
      expected.Expect(directory);
      std::vector<int64_t> found(pool.size());
      directory.Find(pool, Span<int64_t>(found));
      for (size_t i = 0; i < pool.size(); ++i) {
        const auto row = expected.row_of.find(pool[i]);
        ASSERT_EQ(found[i], row == expected.row_of.end() ? RowDirectory::kAbsent : row->second);
      }
    }
    EXPECT_LE(directory.row_limit(), static_cast<int64_t>(pool.size())) << "rows are reused";
  }
}

}  // namespace
}  // namespace sok
