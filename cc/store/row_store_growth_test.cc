// Rows stay where they are while the table grows, over many slabs.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/store/row_store.h"

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

}  // namespace
}  // namespace sok
