// Concurrent lookups find what a single thread finds.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sok
