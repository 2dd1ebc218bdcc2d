// The places of weights and slots in memory; no two rows overlap.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cc/store/row_store.h"

namespace sok {
namespace {

constexpr int64_t kDims[] = {1, 2, 3, 7, 16, 63, 64, 129, 1025};

TEST(RowStoreLayoutTest, StrideFollowsTheRecord) {
  const auto stride = [](int64_t dim, std::vector<SlotSpec> slots) {
    RowStore store(dim);
    EXPECT_TRUE(store.SetSlots(slots).ok());
    return store.stride();
  };
  EXPECT_EQ(stride(1, {}), 4);
  EXPECT_EQ(stride(7, {}), 8);
  EXPECT_EQ(stride(10, {}), 12);
  EXPECT_EQ(stride(16, {}), 16);
  EXPECT_EQ(stride(17, {}), 20);
  EXPECT_EQ(stride(20, {}), 20);
  EXPECT_EQ(stride(21, {}), 24);
  EXPECT_EQ(stride(25, {}), 32);
  EXPECT_EQ(stride(3, {{3, 0}, {3, 0}}), 12);
  EXPECT_EQ(stride(16, {{1, 0}}), 20);
  EXPECT_EQ(stride(64, {{1, 0}}), 68);
  EXPECT_EQ(stride(64, {{64, 0}, {64, 0}}), 192);
  EXPECT_EQ(stride(1025, {}), 1028);
}

TEST(RowStoreLayoutTest, NoLongRecordTouchesMoreCacheLinesThanItsLengthNeeds) {
  constexpr int64_t kFloatsOfALine = 16;
  for (int64_t floats = 17; floats <= 200; ++floats) {
    RowStore store(floats);
    ASSERT_TRUE(store.Reserve(40).ok());
    const int64_t least = (floats + kFloatsOfALine - 1) / kFloatsOfALine;
    for (int64_t row = 0; row < 40; ++row) {
      const auto begin = reinterpret_cast<uintptr_t>(store.weights(row));
      const auto end = reinterpret_cast<uintptr_t>(store.weights(row) + floats);
      ASSERT_EQ(static_cast<int64_t>((end + 63) / 64 - begin / 64), least)
          << floats << " floats, row " << row;
      ASSERT_EQ(begin % 16, 0u);
    }
    // No length takes more memory than whole lines would.
    EXPECT_LE(store.stride(), kFloatsOfALine * least);
  }
}

TEST(RowStoreLayoutTest, SlotsFollowTheWeights) {
  for (const int64_t dim : kDims) {
    RowStore store(dim);
    const std::vector<SlotSpec> slots = {{dim, 0.5f}, {1, 2.0f}, {dim, -1.0f}};
    ASSERT_TRUE(store.SetSlots(slots).ok());
    ASSERT_TRUE(store.Reserve(3).ok());
    EXPECT_EQ(store.num_slots(), 3);
    EXPECT_EQ(store.slot_spec(1).width, 1);
    EXPECT_EQ(store.slot(2, 0), store.weights(2) + dim);
    EXPECT_EQ(store.slot(2, 1), store.weights(2) + 2 * dim);
    EXPECT_EQ(store.slot(2, 2), store.weights(2) + 2 * dim + 1);
    const RowStore& view = store;
    EXPECT_EQ(view.slot(2, 1), store.slot(2, 1));
    EXPECT_EQ(view.weights(1), store.weights(1));
  }
}

TEST(RowStoreLayoutTest, RowsDoNotOverlap) {
  for (const int64_t dim : kDims) {
    RowStore store(dim);
    const std::vector<SlotSpec> slots = {{dim, 0.0f}, {1, 0.0f}};
    ASSERT_TRUE(store.SetSlots(slots).ok());
    const int64_t rows = 100;
    ASSERT_TRUE(store.Reserve(rows).ok());
    const int64_t floats = 2 * dim + 1;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < floats; ++c) {
        ASSERT_EQ(store.weights(row)[c], 0.0f);
        store.weights(row)[c] = static_cast<float>(row * floats + c + 1);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < floats; ++c) {
        ASSERT_EQ(store.weights(row)[c], static_cast<float>(row * floats + c + 1)) << "dim " << dim;
      }
    }
  }
}

TEST(RowStoreLayoutTest, RecordsOfWholeCacheLinesAreAlignedToThem) {
  RowStore store(64);
  ASSERT_TRUE(store.Reserve(10).ok());
  for (int64_t row = 0; row < 10; ++row) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store.weights(row)) % 64, 0u);
  }
}

}  // namespace
}  // namespace sok
