// Rows beyond 2^31 elements and 2^31 bytes. On the host, their memory is only reserved; rows that are written
// take memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "cc/initializers/initializer.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/store/device_row_store.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/row_pieces.h"

namespace sok {
namespace {

class LargeStoreTest : public testing::Test {
 protected:
  // Before anything uses CUDA.
  static void SetUpTestSuite() { setenv("SOK_ON_HOST_FILL", "0", 1); }
  AsyncAllocator allocator_;
};

std::vector<float> Numbers(int64_t n, float first) {
  std::vector<float> numbers(static_cast<size_t>(n));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = first + static_cast<float>(i);
  return numbers;
}

// Writes values to some columns of these rows, and expects to read them back: rows do not overlap.
void ExpectRowsOfTheirOwn(const DeviceRowStore& store, const std::vector<int64_t>& rows, int64_t first_column,
                          int64_t columns) {
  const auto n = static_cast<int64_t>(rows.size());
  DeviceArray<int64_t> list(rows);
  DeviceArray<float> values(Numbers(n * columns, 1.0f));
  DeviceArray<float> read(Numbers(n * columns, -1e6f));
  const RowList all = {list.data(), 0, n};
  ASSERT_TRUE(ScatterRows(nullptr, store.view(), all, first_column, columns, values.data()).ok());
  ASSERT_TRUE(GatherRows(nullptr, store.view(), all, first_column, columns, read.data()).ok());
  EXPECT_EQ(read.Fetch(), Numbers(n * columns, 1.0f));
}

TEST_F(LargeStoreTest, RowsBeyond32BitsOfElements) {
  constexpr int64_t kDim = 64;
  constexpr int64_t kRows = (int64_t{1} << 26) + 10;  // 2^32 elements, in 513 slabs
  DeviceRowStore store(kDim, &allocator_, &allocator_);
  ASSERT_TRUE(store.Reserve(nullptr, kRows).ok());
  EXPECT_GT(store.bytes(), int64_t{16} << 30);
  // The rows at 2^31 bytes and at 2^31 and 2^32 elements, and their neighbours. With 32-bit offsets, some of
  // them would coincide.
  const std::vector<int64_t> rows = {
      0, 1, (1 << 23) - 1, 1 << 23, (1 << 25) - 1, 1 << 25, (1 << 26) - 1, 1 << 26, (1 << 26) + 1, kRows - 1};
  ExpectRowsOfTheirOwn(store, rows, 0, kDim);

  Initializer initializer;
  initializer.seed = 5;
  DeviceArray<int64_t> list(rows);
  const auto n = static_cast<int64_t>(rows.size());
  // A row's key is its number.
  ASSERT_TRUE(StartRows(nullptr, store.view(), initializer, /*seed=*/0, list.data(), list.data(), n).ok());
  DeviceArray<float> read(Numbers(n * kDim, 0.0f));
  ASSERT_TRUE(GatherRows(nullptr, store.view(), {list.data(), 0, n}, 0, kDim, read.data()).ok());
  std::vector<float> expected;
  for (const int64_t row : rows) {
    for (int64_t c = 0; c < kDim; ++c) expected.push_back(InitialValue(initializer, row, c));
  }
  EXPECT_EQ(read.Fetch(), expected);
}

TEST_F(LargeStoreTest, RowsOfOneGibibyte) {
  constexpr int64_t kDim = int64_t{1} << 28;
  DeviceRowStore store(kDim, &allocator_, &allocator_);
  ASSERT_TRUE(store.Reserve(nullptr, 9).ok());
  ExpectRowsOfTheirOwn(store, {0, 1, 2, 7, 8}, kDim - 3, 3);
  ExpectRowsOfTheirOwn(store, {8, 0}, 0, 2);
}

TEST_F(LargeStoreTest, ASlabBeyond32Bits) {
  constexpr int64_t kRecords = (int64_t{1} << 31) + 100;
  DeviceSlabs slabs(sizeof(int64_t), DeviceSlabs::Fresh::kAnything, &allocator_, &allocator_,
                    int64_t{1} << 35);
  ASSERT_TRUE(slabs.Reserve(nullptr, kRecords).ok());
  const ColumnView<int64_t> column = {slabs.view()};
  const std::vector<int64_t> numbers = {
      0, (1 << 28) - 1, 1 << 28, (int64_t{1} << 31) - 1, int64_t{1} << 31, kRecords - 1};
  const auto n = static_cast<int64_t>(numbers.size());
  DeviceArray<int64_t> list(numbers);
  DeviceArray<int64_t> read(std::vector<int64_t>(numbers.size(), -1));
  ASSERT_TRUE(ScatterColumn(nullptr, column, {list.data(), 0, n}, list.data()).ok());
  ASSERT_TRUE(GatherColumn(nullptr, column, {list.data(), 0, n}, read.data()).ok());
  EXPECT_EQ(read.Fetch(), numbers);
}

}  // namespace
}  // namespace sok
