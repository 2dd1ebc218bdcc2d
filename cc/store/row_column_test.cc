#include "cc/store/row_column.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace sok {
namespace {

TEST(RowColumnTest, ValuesStartAtZeroAndStayWhereTheyAre) {
  RowColumn<int64_t> column;
  std::vector<int64_t*> at;
  // Several slabs of 4 MB.
  for (const int64_t rows : {1, 3, 1000, 2'000'000}) {
    ASSERT_TRUE(column.Reserve(rows).ok());
    EXPECT_EQ(column.rows(), rows);
    EXPECT_EQ(column.bytes(), rows * 8);
    for (int64_t row = at.size(); row < rows; ++row) {
      ASSERT_EQ(column[row], 0);
      column[row] = row - 5;
      at.push_back(&column[row]);
    }
  }
  const RowColumn<int64_t>& view = column;
  for (int64_t row = 0; row < column.rows(); ++row) {
    ASSERT_EQ(&column[row], at[row]);
    ASSERT_EQ(view[row], row - 5);
  }
}

TEST(RowColumnTest, SizesThatAreNotAPowerOfTwo) {
  struct Three {
    int8_t bytes[3];
  };
  RowColumn<Three> column;
  ASSERT_TRUE(column.Reserve(3'000'000).ok());
  for (int64_t row = 0; row < column.rows(); ++row) column[row].bytes[row % 3] = 1 + row % 100;
  for (int64_t row = 0; row < column.rows(); ++row) {
    for (int64_t b = 0; b < 3; ++b) ASSERT_EQ(column[row].bytes[b], b == row % 3 ? 1 + row % 100 : 0);
  }
}

TEST(RowColumnTest, TooLittleMemoryIsAnErrorAndChangesNothing) {
  RowColumn<int32_t> column;
  ASSERT_TRUE(column.Reserve(10).ok());
  column[9] = 4;
  EXPECT_EQ(column.Reserve(int64_t{1} << 50).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(column.Reserve(INT64_MAX).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(column.rows(), 10);
  EXPECT_EQ(column[9], 4);
}

}  // namespace
}  // namespace sok
