// A step takes memory for its own new rows: no array of the table doubles, or moves, in one step.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/table/testing/test_table.h"

namespace sok {
namespace {

// Sanitizers keep memory that was freed.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t ResidentBytes() {
  int64_t all = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(TableGrowthTest, EachStepAddsAsMuchMemoryAsOthers) {
  constexpr int64_t kBatch = 1 << 16;
  constexpr int64_t kSteps = 36;  // past 2^21 rows
  const std::vector<int64_t> ids = DistinctIds(kSteps * kBatch, 1);
  auto table = MakeTestTable(TestOptions(16));
  ASSERT_TRUE(table->TrackChanges().ok());
  ThreadPool executor(2, 0);
  std::vector<int64_t> rows(kBatch);
  std::vector<int64_t> read_default;
  std::vector<int64_t> added;
  const MutexLock lock(table->mutex());
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t before = ResidentBytes();
    ASSERT_TRUE(table
                    ->FindForTraining(executor, Span<const int64_t>(ids).subspan(step * kBatch, kBatch), {},
                                      Span<int64_t>(rows), &read_default)
                    .ok());
    added.push_back(ResidentBytes() - before);
  }
  // The first steps also get the memory in which a lookup works.
  added.erase(added.begin(), added.begin() + 4);
  std::sort(added.begin(), added.end());
  const int64_t median = added[added.size() / 2];
  // 64 bytes of weights, 8 of the key, and 40 of the index, by huge pages.
  EXPECT_GE(median, 80 * kBatch);
  EXPECT_LE(median, 160 * kBatch);
  EXPECT_LE(added.back(), 3 * median);
}
#endif

}  // namespace
}  // namespace sok
