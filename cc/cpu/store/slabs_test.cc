#include "cc/cpu/store/slabs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <set>
#include <vector>

namespace sok {
namespace {

// Resident bytes of this process.
int64_t ResidentBytes() {
  int64_t total = 0;
  int64_t resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  const int read = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

TEST(SlabsTest, BitsAreTheLargestThatFit) {
  EXPECT_EQ(Slabs::BitsFor(16, 16), 0);
  EXPECT_EQ(Slabs::BitsFor(16, 31), 0);
  EXPECT_EQ(Slabs::BitsFor(16, 32), 1);
  EXPECT_EQ(Slabs::BitsFor(16, 1 << 20), 16);
  EXPECT_EQ(Slabs::BitsFor(48, 1 << 20), 14);
  EXPECT_EQ(Slabs::BitsFor(int64_t{1} << 40, 1 << 20), 0);
}

TEST(SlabsTest, RecordsDoNotOverlap) {
  Slabs slabs(24, 3);
  ASSERT_TRUE(slabs.Reserve(50).ok());
  EXPECT_EQ(slabs.records_per_slab(), 8);
  std::set<char*> seen;
  for (int64_t record = 0; record < 50; ++record) {
    char* begin = slabs.at(record);
    const auto after = seen.lower_bound(begin);
    if (after != seen.end()) {
      ASSERT_GE(*after - begin, 24);
    }
    if (after != seen.begin()) {
      ASSERT_GE(begin - *std::prev(after), 24);
    }
    seen.insert(begin);
  }
}

TEST(SlabsTest, ASmallTableTakesLittleMemory) {
  // A slab is 16 MB here; the table has a hundred records in it.
  Slabs slabs(64, 18);
  const int64_t before = ResidentBytes();
  ASSERT_GT(before, 0);
  ASSERT_TRUE(slabs.Reserve(100).ok());
  for (int64_t record = 0; record < 100; ++record) *slabs.at(record) = 1;
  EXPECT_LT(ResidentBytes() - before, 1 << 20);
}

TEST(SlabsTest, ReleaseReturnsMemoryToTheSystem) {
  Slabs slabs(64, 18);
  ASSERT_TRUE(slabs.Reserve(2 << 18).ok());
  for (int64_t record = 0; record < slabs.size(); ++record) *slabs.at(record) = 1;
  const int64_t before = ResidentBytes();
  slabs.Release(0);
  EXPECT_LT(ResidentBytes(), before - (12 << 20));
  EXPECT_EQ(*slabs.at((2 << 18) - 1), 1);
}

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
