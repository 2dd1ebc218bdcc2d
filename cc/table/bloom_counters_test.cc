#include "cc/table/bloom_counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "cc/base/testing/test_ids.h"

namespace sok {
namespace {

BloomCounters Make(int64_t max_elements, double p, int bits) {
  StatusOr<BloomCounters> made = BloomCounters::Create(max_elements, p, bits);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made.value());
}

TEST(BloomCountersTest, IsSizedByTheFormula) {
  const BloomCounters counters = Make(1000, 0.01, 16);
  EXPECT_EQ(counters.hashes(), 7);        // log2(100) = 6.64
  EXPECT_EQ(counters.counters(), 10099);  // 7000 / 0.6931
  EXPECT_EQ(counters.bytes().size(), 2 * 10099);
  EXPECT_EQ(Make(1, 0.9, 8).hashes(), 1);
  EXPECT_EQ(Make(1, 1e-15, 8).hashes(), 50);
}

TEST(BloomCountersTest, ErrorsNameBadValues) {
  for (const int64_t elements : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    const Status status = BloomCounters::Check(elements, 0.1, 8);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(elements)), std::string::npos);
  }
  for (const double p : {0.0, -1.0, 1.0, 2.0, std::nan("")}) {
    EXPECT_FALSE(BloomCounters::Check(10, p, 8).ok()) << p;
  }
  EXPECT_FALSE(BloomCounters::Check(10, 0.1, 12).ok());
}

TEST(BloomCountersTest, NeverCountsTooFewAndSeldomTooMany) {
  for (const int bits : {8, 16, 32, 64}) {
    BloomCounters counters = Make(2000, 0.01, bits);
    std::map<int64_t, int64_t> expected;
    std::mt19937_64 random(bits);
    std::vector<int64_t> ids = DistinctIds(1000, bits);
    for (const int64_t id : HostileIds()) ids.push_back(id);
    for (int round = 0; round < 5000; ++round) {
      const int64_t id = ids[random() % ids.size()];
      const int64_t count = static_cast<int64_t>(random() % 4);
      counters.Add(id, count);
      expected[id] += count;
    }
    int64_t over = 0;
    for (const int64_t id : ids) {
      ASSERT_GE(counters.Count(id), std::min(expected[id], counters.max_count())) << id;
      over += counters.Count(id) > expected[id] ? 1 : 0;
    }
    EXPECT_LE(over, 20) << bits << " bits";
    const std::vector<int64_t> unseen = DistinctIds(1000, 999);
    EXPECT_LE(std::count_if(unseen.begin(), unseen.end(), [&](int64_t id) { return counters.Count(id) > 0; }),
              20);
  }
}

TEST(BloomCountersTest, CountersSaturate) {
  for (const int bits : {8, 16, 32, 64}) {
    BloomCounters counters = Make(10, 0.1, bits);
    counters.Add(5, counters.max_count() - 1);
    EXPECT_EQ(counters.Count(5), counters.max_count() - 1);
    counters.Add(5, INT64_MAX);
    EXPECT_EQ(counters.Count(5), counters.max_count());
    counters.Add(5, 1);
    EXPECT_EQ(counters.Count(5), counters.max_count());
  }
}

TEST(BloomCountersTest, MergingTakesTheLargerCounter) {
  BloomCounters one = Make(100, 0.01, 16);
  BloomCounters other = Make(100, 0.01, 16);
  one.Add(1, 3);
  other.Add(1, 2);
  other.Add(2, 400);
  const int64_t half = one.counters() / 2;
  const Span<const char> bytes = other.bytes();
  ASSERT_TRUE(one.MergeMax(0, bytes.subspan(0, 2 * half)).ok());
  ASSERT_TRUE(one.MergeMax(half, bytes.subspan(2 * half, bytes.size() - 2 * half)).ok());
  EXPECT_GE(one.Count(1), 3);
  EXPECT_EQ(one.Count(2), 400);
  EXPECT_FALSE(one.MergeMax(1, bytes).ok());
  EXPECT_FALSE(one.MergeMax(0, bytes.subspan(0, 3)).ok());
  EXPECT_FALSE(one.MergeMax(-1, bytes.subspan(0, 2)).ok());
}

}  // namespace
}  // namespace sok
