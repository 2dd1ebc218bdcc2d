#include "cc/store/slabs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <set>

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

}  // namespace
}  // namespace sok
