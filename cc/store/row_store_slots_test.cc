// Adding the slots of an optimizer keeps the weights bit for bit.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cc/base/hash.h"
#include "cc/store/row_store.h"

namespace sok {
namespace {

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
