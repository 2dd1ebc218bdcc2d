// Concurrent lookups find what a single thread finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/index/id_index.h"

namespace sok {
namespace {

TEST(IdIndexConcurrentTest, FindGivesTheSameRowsForAnyNumberOfThreads) {
  const std::vector<int64_t> present = DistinctIds(3000, 1);
  std::vector<int64_t> numbers(present.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  IdIndex index;
  ASSERT_TRUE(index.Insert(present, numbers).ok());
  std::vector<int64_t> asked = present;
  for (const int64_t id : DistinctIds(3000, 2)) asked.push_back(id);
  std::vector<int64_t> expected = numbers;
  expected.resize(asked.size(), IdIndex::kAbsent);
  for (const int threads : {1, 2, 3, 4}) {
    ThreadPool pool(threads, 0);
    std::vector<int64_t> rows(asked.size(), -7);
    pool.ParallelFor(asked.size(), 1, [&](int64_t begin, int64_t end) {
      index.Find(Span<const int64_t>(asked).subspan(begin, end - begin),
                 Span<int64_t>(rows).subspan(begin, end - begin));
    });
    EXPECT_EQ(rows, expected) << threads << " threads";
  }
}

// Each insertion adds buckets, which take ids from others.
TEST(IdIndexConcurrentTest, ThreadsFindIdsWhileTheIndexGrows) {
  const std::vector<int64_t> ids = DistinctIds((1 << 17) + 200, 1);
  std::vector<int64_t> numbers(ids.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  const Span<const int64_t> all(ids);
  IdIndex index;
  ASSERT_TRUE(index.Insert(all.subspan(0, 1 << 17), Span<const int64_t>(numbers).subspan(0, 1 << 17)).ok());
  ThreadPool pool(3, 0);
  for (int64_t size = 1 << 17; size < all.size(); size += 50) {
    ASSERT_TRUE(index.Insert(all.subspan(size, 50), Span<const int64_t>(numbers).subspan(size, 50)).ok());
    // All but the last ids are not there yet.
    std::vector<int64_t> expected = numbers;
    std::fill(expected.begin() + size + 50, expected.end(), IdIndex::kAbsent);
    std::vector<int64_t> rows(ids.size(), -7);
    pool.ParallelFor(all.size(), 1, [&](int64_t begin, int64_t end) {
      index.Find(all.subspan(begin, end - begin), Span<int64_t>(rows).subspan(begin, end - begin));
    });
    EXPECT_EQ(rows, expected) << size;
  }
}

}  // namespace
}  // namespace sok
