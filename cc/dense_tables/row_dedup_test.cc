#include "cc/dense_tables/row_dedup.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/dedup/testing/dedup_reference.h"

namespace sok {
namespace {

void ExpectAsReference(Executor& executor, const std::vector<int64_t>& rows, int64_t limit,
                       RowDeduplicator* deduplicator) {
  std::vector<int64_t> unique(3, -7);
  std::vector<int32_t> inverse(rows.size(), -7);
  const Status status = deduplicator->Run(executor, rows, limit, &unique, inverse);
  ASSERT_TRUE(status.ok()) << status.message();
  const ReferenceUnique expected = ReferenceDedup(rows);
  EXPECT_EQ(unique, expected.unique) << "limit " << limit;
  EXPECT_EQ(inverse, expected.inverse) << "limit " << limit;
}

// One object for all batches, so that what one leaves behind would be seen in the next.
TEST(RowDedupTest, FindsWhatTheReferenceFinds) {
  std::mt19937_64 random(1);
  InlineExecutor one_thread;
  ThreadPool six_threads(5, /*min_block_ns=*/0);
  RowDeduplicator deduplicator;
  for (Executor* executor : {static_cast<Executor*>(&one_thread), static_cast<Executor*>(&six_threads)}) {
    for (const int64_t limit : {1, 2, 50, 3000, 3001, 100000, 7}) {
      for (const size_t size : {0, 1, 40, 2000, 20000}) {
        std::vector<int64_t> uniform(size), skewed(size), last(size, limit - 1);
        for (size_t i = 0; i < size; ++i) {
          uniform[i] = static_cast<int64_t>(random() % limit);
          skewed[i] = static_cast<int64_t>(random() % (1 + random() % limit));
        }
        for (const auto& rows : {uniform, skewed, last}) {
          ExpectAsReference(*executor, rows, limit, &deduplicator);
        }
      }
    }
  }
}

TEST(RowDedupTest, TakesRowsThatAreNotInTheTable) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  InlineExecutor executor;
  RowDeduplicator deduplicator;
  ExpectAsReference(executor, {3, 3, 1}, 4, &deduplicator);
  for (const int64_t bad : {int64_t{4}, int64_t{-1}, kLowest, kHighest}) {
    ExpectAsReference(executor, {3, bad, 3, 0, bad}, 4, &deduplicator);
    ExpectAsReference(executor, {3, 0}, 4, &deduplicator);
  }
  for (const int64_t limit : {int64_t{0}, int64_t{-1}, kLowest, kHighest}) {
    ExpectAsReference(executor, {3, 5, 3}, limit, &deduplicator);
    ExpectAsReference(executor, {}, limit, &deduplicator);
  }
}

}  // namespace
}  // namespace sok
