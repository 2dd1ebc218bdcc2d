// Rows of a store with a disk below it equal those of one without, whatever leaves memory when.
#include "cc/cpu/store/row_tiers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/cpu/store/row_store.h"

namespace sok {
namespace {

constexpr int64_t kDim = 4;
constexpr int64_t kRecordBytes = kDim * 4;

RowStore StoreOf(int64_t limit, int64_t rows, bool by_frequency = false) {
  RowStore store(kDim);
  TierOptions options;
  options.memory_bytes = limit * kRecordBytes;
  options.folder = testing::TempDir();
  options.by_frequency = by_frequency;
  EXPECT_TRUE(store.AddDisk(options).ok());
  EXPECT_TRUE(store.Reserve(rows).ok());
  return store;
}

Status Write(Executor& executor, const std::vector<int64_t>& rows, float value, RowStore* store) {
  store->BeginCall();
  SOK_RETURN_IF_ERROR(store->BringUp(executor, rows, RowUse::kWrite));
  for (const int64_t row : rows) std::fill_n(store->weights(row), kDim, value + static_cast<float>(row));
  return OkStatus();
}

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> rows(end - begin);
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

TEST(RowTiersTest, RowsEqualThoseOfAStoreWithoutDisk) {
  constexpr int64_t kRows = 200;
  for (const int64_t limit : {1, 3, 20, 150, 400}) {
    for (const bool by_frequency : {false, true}) {
      ThreadPool executor(3);
      RowStore store = StoreOf(limit, kRows, by_frequency);
      std::map<int64_t, float> expected;
      std::mt19937 random(limit);
      for (int step = 0; step < 400; ++step) {
        store.BeginCall();
        std::vector<int64_t> rows;
        for (int64_t row = 0; row < kRows; ++row) {
          if (random() % 16 == 0) rows.push_back(row);
        }
        std::shuffle(rows.begin(), rows.end(), random);
        rows.insert(rows.begin() + static_cast<int64_t>(rows.size()) / 2, -1);  // not a row
        if (random() % 4 == 0) rows.push_back(rows.front());                    // twice
        const auto use = static_cast<RowUse>(random() % 4);
        ASSERT_TRUE(store.BringUp(executor, rows, use).ok());
        // More rows of the same call, which must not displace the first ones.
        const std::vector<int64_t> more = {static_cast<int64_t>(random() % kRows)};
        ASSERT_TRUE(store.BringUp(executor, more, RowUse::kRead).ok());
        for (const int64_t row : rows) {
          if (row < 0) continue;
          float* const weights = store.weights(row);
          if (use != RowUse::kNew) {
            ASSERT_EQ(weights[0], expected[row]);
            ASSERT_EQ(weights[kDim - 1], expected[row]);
          }
          if (use == RowUse::kRead || use == RowUse::kScan) continue;
          expected[row] = static_cast<float>(random() % 1000);
          std::fill_n(weights, kDim, expected[row]);
        }
        if (random() % 4 == 0) {
          const int64_t row = random() % kRows;
          store.Forget(row);
          expected[row] = 0.0f;
        }
      }
      const TierCounts counts = store.tiers()->counts();
      EXPECT_LE(counts.rows_in_memory, std::max<int64_t>(limit, 40));
      EXPECT_LE(store.tiers()->file().records(), kRows);
      EXPECT_EQ(counts.bytes_up > 0, limit < 200) << limit;
    }
  }
}

TEST(RowTiersTest, SlotsAreAddedToRowsOnDisk) {
  InlineExecutor executor;
  RowStore store = StoreOf(3, 50);
  for (int64_t row = 0; row < 40; ++row) ASSERT_TRUE(Write(executor, {row}, 100.0f, &store).ok());
  const std::vector<SlotSpec> slots = {{kDim, 0.5f}};
  ASSERT_TRUE(store.SetSlots(slots).ok());
  for (int64_t row = 0; row < 40; ++row) {
    store.BeginCall();
    ASSERT_TRUE(store.BringUp(executor, Span<const int64_t>(&row, 1), RowUse::kRead).ok());
    ASSERT_EQ(store.weights(row)[kDim - 1], 100.0f + static_cast<float>(row));
    ASSERT_EQ(store.slot(row, 0)[kDim - 1], 0.5f);
  }
}

TEST(RowTiersTest, RowsThatOnlyWereReadAreNotWrittenAgain) {
  InlineExecutor executor;
  RowStore store = StoreOf(10, 100);
  for (int64_t row = 0; row < 100; row += 10) {
    ASSERT_TRUE(Write(executor, Range(row, row + 10), 0.0f, &store).ok());
  }
  for (int pass = 0; pass < 3; ++pass) {
    const int64_t before = store.tiers()->counts().bytes_down;
    for (int64_t row = 0; row < 100; row += 10) {
      store.BeginCall();
      ASSERT_TRUE(store.BringUp(executor, Range(row, row + 10), RowUse::kRead).ok());
    }
    EXPECT_EQ(store.tiers()->counts().bytes_down - before, pass == 0 ? 10 * kRecordBytes : 0);
  }
}

// The share of lookups of 5 favourites that find them in memory, while other rows come and go.
double ShareOfFavourites(bool by_frequency, RowUse others) {
  InlineExecutor executor;
  RowStore store = StoreOf(20, 1000, by_frequency);
  std::mt19937 random(1);
  int64_t hits = 0;
  int64_t lookups = 0;
  for (int step = 0; step < 1000; ++step) {
    // Often at first, then so rarely that all rows have been replaced in between.
    if (step < 50 || step % 4 == 0) {
      store.BeginCall();
      const int64_t before = store.tiers()->counts().hits;
      EXPECT_TRUE(store.BringUp(executor, Range(0, 5), RowUse::kRead).ok());
      hits += store.tiers()->counts().hits - before;
      lookups += 5;
    }
    store.BeginCall();
    std::vector<int64_t> rows;
    while (rows.size() < 6) {
      const int64_t row = 5 + random() % 995;
      if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    }
    EXPECT_TRUE(store.BringUp(executor, rows, others).ok());
  }
  return static_cast<double>(hits) / static_cast<double>(lookups);
}

TEST(RowTiersTest, TheStrategyDecidesWhoStays) {
  EXPECT_LT(ShareOfFavourites(/*by_frequency=*/false, RowUse::kRead), 0.5);
  EXPECT_GT(ShareOfFavourites(/*by_frequency=*/true, RowUse::kRead), 0.7);
  // Rows of a scan leave first.
  EXPECT_GT(ShareOfFavourites(/*by_frequency=*/false, RowUse::kScan), 0.9);
}

TEST(RowTiersTest, DamageIsAnErrorAndOtherRowsGoOn) {
  InlineExecutor executor;
  RowStore store = StoreOf(2, 10);
  for (int64_t row = 0; row < 6; ++row) ASSERT_TRUE(Write(executor, {row}, 1.0f, &store).ok());
  const int descriptor = store.tiers()->file().descriptor();
  const char zeros[32] = {};
  ASSERT_EQ(pwrite(descriptor, zeros, sizeof(zeros), 16), 32);  // row 0 and the header of row 1
  store.BeginCall();
  for (const int64_t row : {0, 1}) {
    const Status status = store.BringUp(executor, Span<const int64_t>(&row, 1), RowUse::kRead);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << row;
  }
  for (int64_t row = 2; row < 6; ++row) {
    store.BeginCall();
    ASSERT_TRUE(store.BringUp(executor, Span<const int64_t>(&row, 1), RowUse::kRead).ok());
    EXPECT_EQ(store.weights(row)[0], 1.0f + static_cast<float>(row));
  }
}

TEST(RowTiersTest, DamageAnywhereIsNeverAWrongRow) {
  constexpr int64_t kRows = 2000;
  constexpr int64_t kStride = kRecordBytes + 16;
  ThreadPool executor(2);
  RowStore store = StoreOf(50, kRows);
  std::vector<float> expected(kRows, 0.0f);
  std::mt19937 random(3);
  int damaged = 0;
  for (int step = 0; step < 2000; ++step) {
    const char byte = static_cast<char>(random());
    const off_t offset = random() % (kRows * kStride);
    const RowTiers& tiers = *store.tiers();
    if (step % 4 == 0 && offset < tiers.file().bytes()) {
      ASSERT_EQ(pwrite(tiers.file().descriptor(), &byte, 1, offset), 1);
    }
    std::vector<int64_t> rows(40);
    for (int64_t& row : rows) row = random() % kRows;
    store.BeginCall();
    const Status status = store.BringUp(executor, rows, RowUse::kWrite);
    if (status.ok()) {
      for (const int64_t row : rows) {
        ASSERT_EQ(store.weights(row)[0], expected[row]);
        ASSERT_EQ(store.weights(row)[kDim - 1], expected[row]);
      }
    } else {
      ASSERT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
      ++damaged;
      // As a restore does.
      for (const int64_t row : rows) store.Forget(row);
      ASSERT_TRUE(store.BringUp(executor, rows, RowUse::kNew).ok());
    }
    for (const int64_t row : rows) {
      expected[row] = static_cast<float>(random() % 1000);
      std::fill_n(store.weights(row), kDim, expected[row]);
    }
  }
  EXPECT_GT(damaged, 3);
}

}  // namespace
}  // namespace sok
