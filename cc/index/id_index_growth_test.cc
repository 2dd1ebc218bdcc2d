// Growing keeps every id, and reserving makes room without further growth.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/index/id_index.h"

namespace sok {
namespace {

std::vector<int64_t> Numbers(int64_t begin, int64_t end) {
  std::vector<int64_t> numbers;
  for (int64_t i = begin; i < end; ++i) numbers.push_back(i);
  return numbers;
}

TEST(IdIndexGrowthTest, ManyDoublingsInUnevenSteps) {
  const std::vector<int64_t> ids = DistinctIds(100000, 1);
  IdIndex index;
  int64_t doublings = 0;
  int64_t count = 0;
  for (int64_t step = 1; count < 100000; step = step * 3 / 2 + 1) {
    const int64_t n = std::min<int64_t>(step, 100000 - count);
    const int64_t bytes = index.bytes();
    ASSERT_TRUE(index.Insert(Span<const int64_t>(&ids[count], n), Numbers(count, count + n)).ok());
    count += n;
    doublings += index.bytes() != bytes;
    ASSERT_EQ(index.size(), count);
    std::vector<int64_t> rows(count);
    index.Find(Span<const int64_t>(ids.data(), count), Span<int64_t>(rows));
    ASSERT_EQ(rows, Numbers(0, count));
  }
  EXPECT_GE(doublings, 8);
}

TEST(IdIndexGrowthTest, ReservedRoomIsFilledWithoutGrowth) {
  IdIndex index;
  for (const int64_t n : {0, 1, 8, 9, 1000, 1024, 1025}) {
    ASSERT_TRUE(index.Reserve(n).ok());
    const int64_t bytes = index.bytes();
    EXPECT_GE(bytes, 2 * n * 16);
    const std::vector<int64_t> ids = Numbers(index.size(), n);
    ASSERT_TRUE(index.Insert(ids, ids).ok());
    EXPECT_EQ(index.bytes(), bytes) << n;
  }
}

TEST(IdIndexGrowthTest, ReserveNeverShrinks) {
  IdIndex index;
  ASSERT_TRUE(index.Reserve(10000).ok());
  const int64_t bytes = index.bytes();
  ASSERT_TRUE(index.Reserve(5).ok());
  ASSERT_TRUE(index.Reserve(-5).ok());
  EXPECT_EQ(index.bytes(), bytes);
}

TEST(IdIndexGrowthTest, ForEachVisitsEveryIdOnce) {
  IdIndex index;
  std::vector<int64_t> ids = DistinctIds(3000, 2);
  for (const int64_t id : HostileIds()) ids.push_back(id);
  ASSERT_TRUE(index.Insert(ids, Numbers(0, ids.size())).ok());
  std::map<int64_t, int64_t> visited;
  index.ForEach([&](int64_t id, int64_t row) { EXPECT_TRUE(visited.emplace(id, row).second); });
  ASSERT_EQ(visited.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(visited[ids[i]], static_cast<int64_t>(i));
}

TEST(IdIndexGrowthTest, EmptyIndexIsUsable) {
  IdIndex index;
  const std::vector<int64_t> ids = HostileIds();
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(index.bytes(), 0);
  std::vector<int64_t> rows(ids.size());
  index.Find(ids, Span<int64_t>(rows));
  EXPECT_EQ(rows, std::vector<int64_t>(ids.size(), IdIndex::kAbsent));
  index.ForEach([](int64_t, int64_t) { FAIL(); });
  ASSERT_TRUE(index.Insert(ids, Numbers(5, 5 + ids.size())).ok());
  index.Find(ids, Span<int64_t>(rows));
  EXPECT_EQ(rows, Numbers(5, 5 + ids.size()));
}

TEST(IdIndexGrowthTest, TooLittleMemoryIsAnErrorAndChangesNothing) {
  IdIndex index;
  const std::vector<int64_t> ids = HostileIds();
  ASSERT_TRUE(index.Insert(ids, Numbers(0, ids.size())).ok());
  const int64_t bytes = index.bytes();
  for (const int64_t n : {int64_t{1} << 45, int64_t{1} << 60, INT64_MAX}) {
    const Status status = index.Reserve(n);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find(std::to_string(n)), std::string::npos) << status.message();
  }
  EXPECT_EQ(index.bytes(), bytes);
  std::vector<int64_t> rows(ids.size());
  index.Find(ids, Span<int64_t>(rows));
  EXPECT_EQ(rows, Numbers(0, ids.size()));
}

}  // namespace
}  // namespace sok
