#include "cc/table/row_changes.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace sok {
namespace {

constexpr int64_t kRows = 200;

std::set<int64_t> ChangedRows(const RowChanges& changes) {
  std::set<int64_t> rows;
  for (int64_t row = 0; row < kRows; ++row) {
    if (changes.changed(row)) rows.insert(row);
  }
  return rows;
}

std::vector<int64_t> Sorted(const std::set<int64_t>& set) { return {set.begin(), set.end()}; }

TEST(RowChangesTest, NothingIsKeptBeforeStart) {
  RowChanges changes;
  ASSERT_TRUE(changes.Reserve(kRows, 1).ok());
  changes.MarkChanged(3);
  changes.MarkErased(4, 44);
  EXPECT_FALSE(changes.tracks());
  EXPECT_TRUE(ChangedRows(changes).empty());
  EXPECT_TRUE(changes.erased().empty());
}

TEST(BitmapTest, BitsStayWhileItGrows) {
  Bitmap bitmap;
  std::set<int64_t> set;
  int64_t next = 0;
  for (const int64_t bits : {1, 63, 64, 65, 1000, 900, 1 << 20, 1 << 25, 3 << 25}) {
    ASSERT_TRUE(bitmap.Reserve(bits).ok());
    for (; next < bits; next += 1 + next / 16) {
      bitmap.Set(next);
      set.insert(next);
    }
    for (const int64_t bit : set) {
      EXPECT_TRUE(bitmap[bit]) << bit;
      EXPECT_EQ(bitmap[bit + 1], set.count(bit + 1) > 0) << bit;
    }
    EXPECT_FALSE(bitmap[int64_t{1} << 40]);
  }
  bitmap.ClearAll();
  for (const int64_t bit : set) EXPECT_FALSE(bitmap[bit]) << bit;
}

// Sanitizers end the process instead of throwing std::bad_alloc.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(RowChangesTest, NothingIsTrackedIfThereIsNoMemoryForIt) {
  RowChanges changes;
  EXPECT_EQ(changes.Start(int64_t{1} << 50).code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(changes.tracks());
  changes.MarkChanged(3);
  changes.MarkErased(4, 44);
  EXPECT_TRUE(changes.erased().empty());
  ASSERT_TRUE(changes.Start(kRows).ok());
  EXPECT_EQ(changes.Start(int64_t{1} << 50).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(changes.tracks()) << "as before";
  changes.MarkChanged(3);
  EXPECT_EQ(ChangedRows(changes), (std::set<int64_t>{3}));
}
#endif

TEST(RowChangesTest, AFailedSaveLosesNothing) {
  RowChanges changes;
  ASSERT_TRUE(changes.Start(kRows).ok());
  ASSERT_TRUE(changes.Reserve(kRows, 10).ok());
  changes.MarkChanged(1);
  changes.MarkErased(7, 70);
  changes.BeginSave();
  EXPECT_EQ(ChangedRows(changes), (std::set<int64_t>{1})) << "the save has not ended";
  changes.MarkChanged(2);
  changes.MarkErased(1, 10);
  changes.EndSave(false);
  EXPECT_EQ(ChangedRows(changes), (std::set<int64_t>{2})) << "row 1 was erased";
  EXPECT_EQ(changes.erased(), (std::vector<int64_t>{10, 70}));
  changes.BeginSave();
  changes.MarkChanged(9);
  changes.EndSave(true);
  EXPECT_EQ(ChangedRows(changes), (std::set<int64_t>{9}));
  EXPECT_TRUE(changes.erased().empty());
}

// A random stream, compared with two sets for the time before BeginSave and two for the time after it.
TEST(RowChangesTest, RandomStreamsEqualSets) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    std::mt19937_64 random(seed);
    RowChanges changes;
    ASSERT_TRUE(changes.Start(kRows).ok());
    std::set<int64_t> now, saving, erased, saving_erased;
    bool saves = false;
    for (int round = 0; round < 5000; ++round) {
      ASSERT_TRUE(changes.Reserve(kRows, 1).ok());
      const int64_t row = static_cast<int64_t>(random() % kRows);
      const uint64_t what = random() % 100;
      if (what < 60) {
        changes.MarkChanged(row);
        now.insert(row);
      } else if (what < 97) {
        changes.MarkErased(row, row % 37 - 18);
        now.erase(row);
        saving.erase(row);
        erased.insert(row % 37 - 18);
      } else if (!saves) {
        changes.BeginSave();
        saving.insert(now.begin(), now.end());
        saving_erased.insert(erased.begin(), erased.end());
        now.clear();
        erased.clear();
        saves = true;
      } else {
        const bool ok = random() % 2 == 0;
        changes.EndSave(ok);
        if (!ok) now.insert(saving.begin(), saving.end());
        if (!ok) erased.insert(saving_erased.begin(), saving_erased.end());
        saving.clear();
        saving_erased.clear();
        saves = false;
      }
      std::set<int64_t> all = now;
      all.insert(saving.begin(), saving.end());
      ASSERT_EQ(ChangedRows(changes), all);
      std::set<int64_t> all_erased = erased;
      all_erased.insert(saving_erased.begin(), saving_erased.end());
      ASSERT_EQ(changes.erased(), Sorted(all_erased));
    }
  }
}

}  // namespace
}  // namespace sok
