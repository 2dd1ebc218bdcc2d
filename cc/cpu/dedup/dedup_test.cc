// The distinct ids and the inverse are those of the reference, for every kind of batch and number of threads.
#include "cc/cpu/dedup/dedup.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/dedup/probe_table.h"
#include "cc/cpu/dedup/testing/dedup_reference.h"

namespace sok {
namespace {

void ExpectReference(Executor& executor, Deduplicator* deduplicator, const std::vector<int64_t>& ids) {
  const ReferenceUnique expected = ReferenceDedup(ids);
  std::vector<int64_t> unique = {1, 2, 3};
  std::vector<int32_t> inverse(ids.size(), -7);
  ASSERT_TRUE(deduplicator->Run(executor, ids, &unique, Span<int32_t>(inverse)).ok());
  ASSERT_EQ(unique, expected.unique);
  ASSERT_EQ(inverse, expected.inverse);
}

// Large enough to be split over threads.
constexpr int64_t kLarge = 20000;

std::vector<std::pair<std::string, std::vector<int64_t>>> Batches() {
  std::vector<int64_t> sequence(kLarge);
  std::iota(sequence.begin(), sequence.end(), -kLarge / 2);
  std::vector<int64_t> hostile;
  for (int64_t i = 0; i < kLarge; ++i) hostile.push_back(HostileIds()[Mix64(i) % HostileIds().size()]);
  std::vector<int64_t> backwards = sequence;
  backwards.insert(backwards.end(), sequence.rbegin(), sequence.rend());
  return {{"none", {}},
          {"one", {-1}},
          {"hostile, once", HostileIds()},
          {"hostile, repeated", hostile},
          {"one id", std::vector<int64_t>(kLarge, INT64_MIN)},
          {"distinct", DistinctIds(kLarge, 1)},
          {"sequence", sequence},
          {"there and back", backwards},
          {"few random", RandomIds(100, 50, 2)},
          {"random", RandomIds(kLarge, 10000, 3)},
          {"skewed", ZipfIds(60000, 50000, 1.05, 4)},
          {"very skewed", ZipfIds(kLarge, 5000, 2.0, 5)}};
}

class DedupTest : public testing::TestWithParam<int> {};

TEST_P(DedupTest, AgreesWithTheReference) {
  ThreadPool pool(GetParam(), 0);
  for (const auto& [name, ids] : Batches()) {
    SCOPED_TRACE(name);
    Deduplicator deduplicator;
    ExpectReference(pool, &deduplicator, ids);
  }
}

// A batch must not affect the next one, whether that is larger, smaller or equal.
TEST_P(DedupTest, BatchesOneAfterTheOther) {
  ThreadPool pool(GetParam(), 0);
  Deduplicator deduplicator;
  for (int round = 0; round < 2; ++round) {
    for (const auto& [name, ids] : Batches()) {
      SCOPED_TRACE(name);
      ExpectReference(pool, &deduplicator, ids);
    }
  }
}

// Sizes around block boundaries and around the size at which work is first split.
TEST_P(DedupTest, SizesAroundTheBlocks) {
  ThreadPool pool(GetParam(), 0);
  Deduplicator deduplicator;
  for (const int64_t n : {1, 15, 16, 17, 16383, 16384, 16385, 32768, 32769}) {
    SCOPED_TRACE(n);
    ExpectReference(pool, &deduplicator, RandomIds(n, n / 2 + 1, n));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, DedupTest, testing::Values(1, 2, 3, 4));

TEST(DedupLimitsTest, MorePositionsThanInt32HoldsAreRefused) {
  // The size is wrong, so the null pointer must not be read.
  const Span<const int64_t> ids(nullptr, int64_t{1} << 31);
  InlineExecutor executor;
  std::vector<int64_t> unique;
  Deduplicator deduplicator;
  const Status status = deduplicator.Run(executor, ids, &unique, Span<int32_t>());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("2147483648"), std::string::npos) << status.message();
}

TEST(SegmentsTest, AgreesWithTheReferenceAndReusesMemory) {
  Segments segments;
  const std::vector<std::vector<int64_t>> batches = {{},
                                                     {5},
                                                     HostileIds(),
                                                     ZipfIds(20000, 3000, 1.05, 1),
                                                     RandomIds(5000, 1000, 2),
                                                     DistinctIds(3000, 3),
                                                     {},
                                                     std::vector<int64_t>(1000, 7)};
  for (const std::vector<int64_t>& ids : batches) {
    const ReferenceUnique unique = ReferenceDedup(ids);
    const int64_t num_unique = unique.unique.size();
    BuildSegments(unique.inverse, num_unique, &segments);
    const Segments expected = ReferenceSegments(unique.inverse, num_unique);
    EXPECT_EQ(segments.offsets, expected.offsets);
    EXPECT_EQ(segments.positions, expected.positions);
  }
}

TEST(SegmentsTest, IdsWithoutOccurrencesHaveEmptySegments) {
  Segments segments;
  const std::vector<int32_t> inverse = {3, 1, 3};
  BuildSegments(inverse, 5, &segments);
  EXPECT_EQ(segments.offsets, (std::vector<int64_t>{0, 0, 1, 1, 3, 3}));
  EXPECT_EQ(segments.positions, (std::vector<int32_t>{1, 0, 2}));
}

TEST(ProbeTableTest, StoresThenFinds) {
  ProbeTable table;
  ASSERT_TRUE(table.Start(100).ok());
  EXPECT_GE(table.room(), 100);
  int32_t position = 0;
  for (const int64_t id : HostileIds()) {
    EXPECT_EQ(table.FindOrStore(id, id, 10 + position), 10 + position);
    ++position;
  }
  position = 0;
  for (const int64_t id : HostileIds()) EXPECT_EQ(table.FindOrStore(id, id, 99), 10 + position++);
}

TEST(ProbeTableTest, IdsWithEqualHashesAreDistinguished) {
  ProbeTable table;
  ASSERT_TRUE(table.Start(500).ok());
  // The last slot, so that the run wraps around.
  const uint64_t hash = ~uint64_t{0};
  for (int64_t id = 0; id < 500; ++id) ASSERT_EQ(table.FindOrStore(id, hash, id), id);
  for (int64_t id = 0; id < 500; ++id) ASSERT_EQ(table.FindOrStore(id, hash, -1), id);
}

// Every sequence of six small and large uses: whichever of them restarts the numbers, a later use must not
// meet what an earlier one stored, in the slots that both have or beyond them.
TEST(ProbeTableTest, StartEmptiesTheTableEvenWhenUseNumbersRestart) {
  for (const uint32_t max_uses : {1, 2, 3, 4}) {
    for (int sizes = 0; sizes < 64; ++sizes) {
      ProbeTable table(max_uses);
      for (int32_t use = 0; use < 6; ++use) {
        ASSERT_TRUE(table.Start((sizes >> use) % 2 == 0 ? 100 : 2000).ok());
        for (int64_t id = 0; id < 100; ++id) {
          ASSERT_EQ(table.FindOrStore(id, id * 31, 1000 * use + id), 1000 * use + id)
              << max_uses << " uses, sizes " << sizes << ", use " << use;
        }
      }
    }
  }
}

TEST(ProbeTableTest, TooLittleMemoryIsAnError) {
  ProbeTable table;
  EXPECT_EQ(table.Start(int64_t{1} << 45).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(table.Start(10).ok());
  EXPECT_EQ(table.FindOrStore(3, 3, 0), 0);
}

}  // namespace
}  // namespace sok
