// Rows stay where they are while the table grows, over many slabs.
#include "cc/cpu/store/row_store.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cc/base/hash.h"

namespace sok {
namespace {

TEST(RowStoreGrowthTest, RowsNeverMoveAndNewOnesAreZero) {
  for (const int64_t dim : {1, 16, 129, 1025}) {
    RowStore store(dim);
    std::vector<float*> at;
    // Past 16 MB for the wide rows: several slabs.
    for (const int64_t rows : {1, 2, 3, 5, 100, 1000, 5000, 9000}) {
      ASSERT_TRUE(store.Reserve(rows).ok());
      ASSERT_EQ(store.rows(), rows);
      EXPECT_EQ(store.bytes(), rows * store.stride() * 4);
      for (int64_t row = at.size(); row < rows; ++row) {
        at.push_back(store.weights(row));
        ASSERT_EQ(at.back()[0], 0.0f);
        ASSERT_EQ(at.back()[dim - 1], 0.0f);
        at.back()[dim - 1] = static_cast<float>(row + 1);
      }
    }
    for (int64_t row = 0; row < store.rows(); ++row) {
      ASSERT_EQ(store.weights(row), at[row]);
      ASSERT_EQ(at[row][dim - 1], static_cast<float>(row + 1));
    }
  }
}

TEST(RowStoreGrowthTest, ReservingLessChangesNothing) {
  RowStore store(4);
  ASSERT_TRUE(store.Reserve(10).ok());
  for (const int64_t fewer : {10, 3, 0, -1}) EXPECT_TRUE(store.Reserve(fewer).ok());
  EXPECT_EQ(store.rows(), 10);
}

TEST(RowStoreGrowthTest, RecordsLargerThanASlab) {
  RowStore store(5'000'000);
  ASSERT_TRUE(store.Reserve(3).ok());
  store.weights(0)[4'999'999] = 1.0f;
  store.weights(1)[0] = 2.0f;
  store.weights(2)[4'999'999] = 3.0f;
  EXPECT_EQ(store.weights(0)[4'999'999], 1.0f);
  EXPECT_EQ(store.weights(1)[0], 2.0f);
  EXPECT_EQ(store.weights(2)[4'999'999], 3.0f);
}

TEST(RowStoreGrowthTest, TooLittleMemoryIsAnErrorAndChangesNothing) {
  RowStore store(64);
  ASSERT_TRUE(store.Reserve(100).ok());
  store.weights(99)[63] = 5.0f;
  for (const int64_t rows : {int64_t{1} << 40, int64_t{1} << 56, INT64_MAX}) {
    const Status status = store.Reserve(rows);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find(std::to_string(rows)), std::string::npos) << status.message();
  }
  EXPECT_EQ(store.rows(), 100);
  EXPECT_EQ(store.weights(99)[63], 5.0f);
  EXPECT_TRUE(store.Reserve(200).ok());
}

TEST(RowStoreGrowthTest, RowsOfAnArrayAreRecords) {
  for (const int64_t dim : {1, 3, 16, 1025}) {
    for (const int64_t rows : {1, 5, 10000}) {
      RowStore store(dim);
      std::vector<float> array(rows * dim);
      for (size_t i = 0; i < array.size(); ++i) array[i] = static_cast<float>(i % 9973 + 1);
      int64_t placed = 0;
      const auto place = [&](int64_t at, char* to, int64_t bytes) {
        EXPECT_EQ(at, placed);
        std::memcpy(to, reinterpret_cast<const char*>(array.data()) + at, bytes);
        placed += bytes;
        return OkStatus();
      };
      ASSERT_TRUE(store.ReserveWith(rows, place).ok());
      EXPECT_EQ(placed, rows * dim * 4);
      EXPECT_EQ(store.rows(), rows);
      ASSERT_TRUE(store.Reserve(rows + 9000).ok());
      const SlotSpec slot{2, 0.5f};
      for (const int slots : {0, 1}) {
        ASSERT_TRUE(store.SetSlots({&slot, slots}).ok());
        for (int64_t row = 0; row < store.rows(); ++row) {
          for (int64_t c = 0; c < dim; ++c) {
            ASSERT_EQ(store.weights(row)[c], row < rows ? array[row * dim + c] : 0.0f) << row << ", " << c;
          }
        }
      }
      EXPECT_EQ(store.slot(rows, 0)[1], 0.5f);
    }
  }
}

TEST(RowStoreGrowthTest, AnArrayThatCannotBeReadIsAnError) {
  RowStore store(4);
  const auto place = [](int64_t, char*, int64_t) { return DataLoss("no file"); };
  EXPECT_EQ(store.ReserveWith(10, place).message(), "no file");
}

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

// Float bits that are unique to one element of one row, NaNs and negative zeros among them.
uint32_t BitsAt(int64_t row, int64_t column) { return static_cast<uint32_t>(Mix64(row * 4096 + column)); }

void WriteWeights(RowStore* store) {
  for (int64_t row = 0; row < store->rows(); ++row) {
    for (int64_t c = 0; c < store->dim(); ++c) {
      const uint32_t bits = BitsAt(row, c);
      std::memcpy(&store->weights(row)[c], &bits, sizeof(bits));
    }
  }
}

void ExpectWeights(const RowStore& store) {
  for (int64_t row = 0; row < store.rows(); ++row) {
    for (int64_t c = 0; c < store.dim(); ++c) {
      const uint32_t bits = BitsAt(row, c);
      ASSERT_EQ(std::memcmp(&store.weights(row)[c], &bits, sizeof(bits)), 0) << row << ", " << c;
    }
  }
}

void ExpectFills(const RowStore& store) {
  for (int64_t row = 0; row < store.rows(); ++row) {
    for (int k = 0; k < store.num_slots(); ++k) {
      for (int64_t c = 0; c < store.slot_spec(k).width; ++c) {
        ASSERT_EQ(store.slot(row, k)[c], store.slot_spec(k).fill) << row << ", " << k << ", " << c;
      }
    }
  }
}

TEST(RowStoreSlotsTest, WeightsStayBitForBit) {
  for (const int64_t dim : {1, 2, 3, 7, 16, 63, 64, 129, 1025}) {
    RowStore store(dim);
    // More than one slab for the widest rows.
    ASSERT_TRUE(store.Reserve(dim == 1025 ? 6000 : 777).ok());
    WriteWeights(&store);
    const std::vector<SlotSpec> adam = {{dim, 0.0f}, {dim, 0.0f}};
    const std::vector<SlotSpec> rowwise = {{1, 0.1f}};
    const std::vector<SlotSpec> three = {{dim, 0.25f}, {1, -2.0f}, {dim, 1.0f}};
    for (const std::vector<SlotSpec>& slots : {three, adam, rowwise, std::vector<SlotSpec>{}, three}) {
      ASSERT_TRUE(store.SetSlots(slots).ok());
      ASSERT_EQ(store.num_slots(), static_cast<int>(slots.size()));
      ExpectWeights(store);
      ExpectFills(store);
    }
  }
}

TEST(RowStoreSlotsTest, AnEmptyStoreTakesSlots) {
  RowStore store(8);
  const std::vector<SlotSpec> slots = {{8, 0.5f}};
  ASSERT_TRUE(store.SetSlots(slots).ok());
  ASSERT_TRUE(store.Reserve(5).ok());
  store.FillSlots(4);
  EXPECT_EQ(store.slot(4, 0)[7], 0.5f);
}

TEST(RowStoreSlotsTest, FillSlotsLeavesWeightsAndOtherRowsAlone) {
  RowStore store(3);
  const std::vector<SlotSpec> slots = {{3, 0.5f}, {1, 2.0f}};
  ASSERT_TRUE(store.Reserve(3).ok());
  ASSERT_TRUE(store.SetSlots(slots).ok());
  WriteWeights(&store);
  for (int64_t row = 0; row < 3; ++row) {
    store.slot(row, 0)[1] = 7.0f;
    store.slot(row, 1)[0] = 8.0f;
  }
  store.FillSlots(1);
  ExpectWeights(store);
  EXPECT_EQ(store.slot(1, 0)[1], 0.5f);
  EXPECT_EQ(store.slot(1, 1)[0], 2.0f);
  for (const int64_t other : {0, 2}) {
    EXPECT_EQ(store.slot(other, 0)[1], 7.0f);
    EXPECT_EQ(store.slot(other, 1)[0], 8.0f);
  }
}

TEST(RowStoreSlotsTest, ReserveAfterSetSlotsAddsRows) {
  RowStore store(16);
  ASSERT_TRUE(store.Reserve(1000).ok());
  const std::vector<SlotSpec> slots = {{16, 0.0f}, {16, 0.0f}};
  ASSERT_TRUE(store.SetSlots(slots).ok());
  ASSERT_TRUE(store.Reserve(3000).ok());
  WriteWeights(&store);
  ExpectWeights(store);
}

TEST(RowStoreSlotsTest, BadWidthsAreRefused) {
  RowStore store(4);
  ASSERT_TRUE(store.Reserve(10).ok());
  WriteWeights(&store);
  for (const int64_t width : {int64_t{0}, int64_t{-3}, INT64_MAX}) {
    const std::vector<SlotSpec> slots = {{4, 0.0f}, {width, 0.0f}};
    const Status status = store.SetSlots(slots);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(width)), std::string::npos) << status.message();
  }
  EXPECT_EQ(store.num_slots(), 0);
  ExpectWeights(store);
}

TEST(RowStoreSlotsTest, TooLittleMemoryIsAnErrorAndChangesNothing) {
  RowStore store(4);
  ASSERT_TRUE(store.Reserve(1 << 12).ok());
  WriteWeights(&store);
  const std::vector<SlotSpec> slots = {{int64_t{1} << 39, 0.0f}};
  EXPECT_EQ(store.SetSlots(slots).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store.num_slots(), 0);
  EXPECT_EQ(store.stride(), 4);
  ExpectWeights(store);
}

}  // namespace
}  // namespace sok
