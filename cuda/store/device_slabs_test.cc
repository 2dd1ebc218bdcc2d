// Records stay as slabs are added, and columns read as zero where nothing was written.
#include "cuda/store/device_slabs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/store/row_column.h"
#include "cuda/store/row_pieces.h"

namespace sok {
namespace {

using Fresh = DeviceSlabs::Fresh;

class DeviceSlabsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }

  // Records of 8 bytes as a column of numbers.
  static std::vector<int64_t> Read(const ColumnView<int64_t>& column, int64_t first, int64_t n) {
    DeviceArray<int64_t> values(std::vector<int64_t>(n, -7));
    EXPECT_TRUE(GatherColumn(nullptr, column, {nullptr, first, n}, values.data()).ok());
    return values.Fetch();
  }
  static void Write(const ColumnView<int64_t>& column, int64_t first, const std::vector<int64_t>& values) {
    DeviceArray<int64_t> array(values);
    const auto n = static_cast<int64_t>(values.size());
    EXPECT_TRUE(ScatterColumn(nullptr, column, {nullptr, first, n}, array.data()).ok());
    array.Fetch();  // waits before the array is freed
  }
  static std::vector<int64_t> Numbers(int64_t first, int64_t n) {
    std::vector<int64_t> numbers(n);
    for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<int64_t>(Mix64(first + i));
    return numbers;
  }

  LimitedAllocator slabs_, addresses_;
};

TEST_F(DeviceSlabsTest, RecordsStayAsSlabsAreAdded) {
  for (const int64_t slab_bytes : {1, 16, 64, 100, 1024, 1 << 20}) {
    DeviceSlabs slabs(8, Fresh::kZeroBytes, &slabs_, &addresses_, slab_bytes);
    EXPECT_EQ(slabs.bytes(), 0);
    std::vector<int64_t> expected;
    for (const int64_t n : {1, 2, 3, 5, 8, 9, 40, 41, 300, 1000}) {
      if (n > 20 * slab_bytes) break;  // not too many slabs
      ASSERT_TRUE(slabs.Reserve(nullptr, n).ok());
      EXPECT_EQ(slabs.size(), n);
      EXPECT_GE(slabs.bytes(), 8 * n);
      EXPECT_EQ(slabs.bytes(), slabs_.in_use + addresses_.in_use);
      const ColumnView<int64_t> column = {slabs.view()};
      expected.resize(n, 0);
      EXPECT_EQ(Read(column, 0, n), expected) << slab_bytes << ", " << n;
      // All but the last record, which later reservations have to leave zero.
      expected = Numbers(n, n);
      expected[n - 1] = 0;
      Write(column, 0, {expected.begin(), expected.end() - 1});
    }
    EXPECT_EQ(Read({slabs.view()}, 0, slabs.size()), expected);
  }
  EXPECT_EQ(slabs_.in_use + addresses_.in_use, 0);
}

// What a reservation copies and replaces is not freed before the copy, nor anything before it is read,
// whatever stream had the memory before.
TEST_F(DeviceSlabsTest, GrowthOnAnotherStream) {
  for (const int64_t slab_bytes : {64, 1 << 20}) {
    const DeviceStream first, second;
    DeviceArray<int64_t> values(Numbers(0, 5));
    DeviceArray<int64_t> read(std::vector<int64_t>(5, -7));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the arrays are written on the null stream
    {
      DeviceSlabs slabs(8, Fresh::kAnything, &slabs_, &addresses_, slab_bytes);
      ASSERT_TRUE(slabs.Reserve(first.get(), 5).ok());
      const ColumnView<int64_t> column = {slabs.view()};
      ASSERT_TRUE(ScatterColumn(first.get(), column, {nullptr, 0, 5}, values.data()).ok());
      first.Wait();
      ASSERT_TRUE(slabs.Reserve(second.get(), 300).ok());
      ASSERT_TRUE(
          GatherColumn(second.get(), ColumnView<int64_t>{slabs.view()}, {nullptr, 0, 5}, read.data()).ok());
    }
    first.Wait();
    second.Wait();
    EXPECT_EQ(read.Fetch(), Numbers(0, 5));
  }
}

TEST_F(DeviceSlabsTest, OneReservationOfManySlabs) {
  DeviceSlabs slabs(8, Fresh::kAnything, &slabs_, &addresses_, 64);
  ASSERT_TRUE(slabs.Reserve(nullptr, 1200).ok());
  Write({slabs.view()}, 0, Numbers(0, 1200));
  EXPECT_EQ(Read({slabs.view()}, 0, 1200), Numbers(0, 1200));
  ASSERT_TRUE(slabs.Reserve(nullptr, 100).ok());
  EXPECT_EQ(slabs.size(), 1200);
}

TEST_F(DeviceSlabsTest, ASmallTableTakesLittleMemory) {
  DeviceSlabs slabs(64, Fresh::kAnything, &slabs_, &addresses_);
  ASSERT_TRUE(slabs.Reserve(nullptr, 100).ok());
  EXPECT_LE(slabs.bytes(), 8 << 10);
  int64_t last = slabs.bytes();
  int allocations = 0;
  for (int64_t n = 101; n < 20'000; n += 7) {
    ASSERT_TRUE(slabs.Reserve(nullptr, n).ok());
    EXPECT_LE(slabs.bytes(), 2 * 64 * n + 1024);
    allocations += slabs.bytes() != last;
    last = slabs.bytes();
  }
  EXPECT_LE(allocations, 8);
}

TEST_F(DeviceSlabsTest, SlabsHaveTheSizeThatIsAskedFor) {
  DeviceSlabs slabs(48, Fresh::kAnything, &slabs_, &addresses_, 1000);
  ASSERT_TRUE(slabs.Reserve(nullptr, 17).ok());
  EXPECT_EQ(slabs.view().bits, 4);
  EXPECT_EQ(slabs.view().mask, 15);
  EXPECT_EQ(slabs_.in_use, 2 * 16 * 48);
  DeviceSlabs wide(5000, Fresh::kAnything, &slabs_, &addresses_, 1000);
  ASSERT_TRUE(wide.Reserve(nullptr, 3).ok());
  EXPECT_EQ(wide.view().bits, 0);
}

TEST_F(DeviceSlabsTest, WithoutMemoryNothingChanges) {
  for (LimitedAllocator* const short_of : {&slabs_, &addresses_}) {
    DeviceSlabs slabs(8, Fresh::kAnything, &slabs_, &addresses_, 64);
    ASSERT_TRUE(slabs.Reserve(nullptr, 5).ok());
    Write({slabs.view()}, 0, Numbers(0, 5));
    const int64_t bytes = slabs.bytes();
    // Memory for some of the slabs.
    short_of->limit = short_of->in_use + 200;
    for (const int64_t n :
         {int64_t{5000}, std::numeric_limits<int64_t>::max() / 8, std::numeric_limits<int64_t>::max()}) {
      EXPECT_EQ(slabs.Reserve(nullptr, n).code(), StatusCode::kResourceExhausted) << n;
    }
    EXPECT_EQ(slabs.size(), 5);
    EXPECT_EQ(slabs.bytes(), bytes);
    EXPECT_EQ(slabs_.in_use + addresses_.in_use, bytes);
    EXPECT_EQ(Read({slabs.view()}, 0, 5), Numbers(0, 5));
    short_of->limit = INT64_MAX;
    ASSERT_TRUE(slabs.Reserve(nullptr, 50).ok());
    EXPECT_EQ(Read({slabs.view()}, 0, 5), Numbers(0, 5));
  }
}

TEST_F(DeviceSlabsTest, ColumnsOfNumbersAndGenerations) {
  LimitedAllocator allocator;
  DeviceColumn<int64_t> steps(&allocator);
  DeviceColumn<uint32_t> generations(&allocator);
  ASSERT_TRUE(steps.Reserve(nullptr, 100).ok());
  ASSERT_TRUE(generations.Reserve(nullptr, 100).ok());
  EXPECT_EQ(steps.rows(), 100);
  EXPECT_EQ(steps.bytes() + generations.bytes(), allocator.in_use);
  const std::vector<int64_t> list = {99, -1, 0, 50, -1, 7};
  DeviceArray<int64_t> rows(list);
  const RowList some = {rows.data(), 0, 6};
  DeviceArray<int64_t> numbers({10, 11, 12, 13, 14, 15});
  DeviceArray<uint32_t> counts({20, 21, 22, 23, 24, 25});
  ASSERT_TRUE(ScatterColumn(nullptr, steps.view(), some, numbers.data()).ok());
  ASSERT_TRUE(ScatterColumn(nullptr, generations.view(), some, counts.data()).ok());
  ASSERT_TRUE(FillColumn(nullptr, steps.view(), {nullptr, 0, 3}, int64_t{-9}).ok());
  ASSERT_TRUE(FillColumn(nullptr, generations.view(), {rows.data() + 3, 0, 2}, uint32_t{4'000'000'000}).ok());
  DeviceArray<int64_t> read(std::vector<int64_t>(6, -7));
  DeviceArray<uint32_t> read_counts(std::vector<uint32_t>(6, 77));
  ASSERT_TRUE(GatherColumn(nullptr, steps.view(), some, read.data()).ok());
  ASSERT_TRUE(GatherColumn(nullptr, generations.view(), some, read_counts.data()).ok());
  EXPECT_EQ(read.Fetch(), (std::vector<int64_t>{10, -7, -9, 13, -7, 15}));
  EXPECT_EQ(read_counts.Fetch(), (std::vector<uint32_t>{20, 77, 22, 4'000'000'000, 77, 25}));
  EXPECT_EQ(Read(steps.view(), 0, 4), (std::vector<int64_t>{-9, -9, -9, 0}));
}

}  // namespace
}  // namespace sok
