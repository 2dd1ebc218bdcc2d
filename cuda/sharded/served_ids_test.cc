// Requested sums are where plain loops place them, counts add up, and damage is noticed.
#include "cuda/sharded/served_ids.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"

namespace sok {
namespace {

constexpr uint64_t kNoDamage = ~uint64_t{0};

struct Sums {
  std::vector<int32_t> offsets;
  uint64_t damaged = kNoDamage;
};

// parts[q] has the lengths of part q. The last part has `ids_more` more ids than its lengths add up to.
Sums FindSums(const std::vector<std::vector<int32_t>>& parts, int ranks, int64_t ids_more,
              std::vector<int64_t>* ids_begin) {
  std::vector<int64_t> begin = {0};
  std::vector<int32_t> lengths;
  std::vector<int32_t> rank_of;
  *ids_begin = {0};
  for (size_t q = 0; q < parts.size(); ++q) {
    int64_t ids = q + 1 == parts.size() ? ids_more : 0;
    for (const int32_t length : parts[q]) ids += length;
    // A part without sums may have ids, of a table that answers with rows.
    if (parts[q].empty()) ids = 3;
    lengths.insert(lengths.end(), parts[q].begin(), parts[q].end());
    begin.push_back(static_cast<int64_t>(lengths.size()));
    ids_begin->push_back(ids_begin->back() + ids);
    rank_of.push_back(static_cast<int32_t>(q) % ranks);
  }
  const auto count = static_cast<int64_t>(lengths.size());
  lengths.push_back(0);
  DeviceArray<int64_t> device_begin(begin);
  DeviceArray<int64_t> device_ids_begin(*ids_begin);
  DeviceArray<int32_t> device_ranks(rank_of);
  DeviceArray<int32_t> device_lengths(lengths);
  DeviceArray<int32_t> offsets(std::vector<int32_t>(count + parts.size(), -1));
  DeviceArray<uint64_t> damaged({kNoDamage});
  AsyncAllocator allocator;
  const ServedSums sums = {static_cast<int>(parts.size()),
                           device_begin.data(),
                           device_ids_begin.data(),
                           device_ranks.data(),
                           count,
                           device_lengths.data()};
  EXPECT_TRUE(FindServedSums(nullptr, &allocator, sums, offsets.data(), damaged.data()).ok());
  return {offsets.Fetch(), damaged.Fetch()[0]};
}

class ServedIdsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(ServedIdsTest, SumsLieOneAfterTheOther) {
  std::mt19937 random(1);
  for (const size_t most : {0, 1, 5, 300, 1500}) {
    std::vector<std::vector<int32_t>> parts(6);
    for (std::vector<int32_t>& part : parts) {
      part.resize(most == 0 ? 0 : random() % (most + 1));
      for (int32_t& length : part) length = 1 + static_cast<int32_t>(random() % 5);
    }
    std::vector<int64_t> ids_begin;
    const Sums result = FindSums(parts, 3, 0, &ids_begin);
    EXPECT_EQ(result.damaged, kNoDamage);
    std::vector<int32_t> expected;
    for (size_t q = 0; q < parts.size(); ++q) {
      auto at = static_cast<int32_t>(ids_begin[q]);
      for (const int32_t length : parts[q]) {
        expected.push_back(at);
        at += length;
      }
      expected.push_back(static_cast<int32_t>(ids_begin[q + 1]));
    }
    EXPECT_EQ(result.offsets, expected);
  }
}

TEST_F(ServedIdsTest, DamagedLengthsAreNoticed) {
  std::vector<int64_t> ids_begin;
  EXPECT_EQ(FindSums({{1}, {2, 1}, {3}, {}, {5}, {1}}, 3, 0, &ids_begin).damaged, kNoDamage);
  EXPECT_EQ(FindSums({{1}, {2, 1}, {3}, {}, {5}, {1}}, 3, 1, &ids_begin).damaged, 2u);
  EXPECT_EQ(FindSums({{1}, {2, 1}, {3}, {}, {5, 0}, {1}}, 3, 0, &ids_begin).damaged, 1u);
  EXPECT_EQ(FindSums({{1}, {2, 1}, {3}, {}, {5}, {-1, 2}}, 3, 0, &ids_begin).damaged, 2u);
  EXPECT_EQ(FindSums({{1}, {2, 1}, {}, {}, {INT32_MIN, 5}, {-7}}, 3, 0, &ids_begin).damaged, 1u);
  // Their sum equals the number of the part's ids modulo 2^32.
  const std::vector<int32_t> wraps = {INT32_MAX, INT32_MAX, 5};
  EXPECT_EQ(FindSums({{1}, wraps}, 2, -(int64_t{1} << 32), &ids_begin).damaged, 1u);
}

TEST_F(ServedIdsTest, CountsAddUp) {
  std::mt19937 random(2);
  for (const int64_t n : {0, 1, 255, 257, 2000}) {
    const int64_t unique = n / 3 + 1;
    std::vector<int32_t> inverse(n);
    std::vector<int32_t> counts(n);
    std::vector<int32_t> expected(unique, 0);
    for (int64_t p = 0; p < n; ++p) {
      inverse[p] = static_cast<int32_t>(random() % unique);
      counts[p] = 1 + static_cast<int32_t>(random() % 9);
      expected[inverse[p]] += counts[p];
    }
    DeviceArray<int32_t> device_inverse(inverse);
    DeviceArray<int32_t> device_counts(counts);
    DeviceArray<int32_t> sums(std::vector<int32_t>(unique, -1));
    DeviceArray<int64_t> ids_begin({0, n});
    DeviceArray<int32_t> ranks({0});
    DeviceArray<uint64_t> damaged({kNoDamage});
    const ServedCounts served = {device_inverse.data(), n,           device_counts.data(),
                                 sums.data(),           unique,      1,
                                 ids_begin.data(),      ranks.data()};
    ASSERT_TRUE(AddServedCounts(nullptr, served, damaged.data()).ok());
    EXPECT_EQ(sums.Fetch(), expected);
    EXPECT_EQ(damaged.Fetch()[0], kNoDamage);
  }
}

TEST_F(ServedIdsTest, CountsStopAtTheirBoundAndMustBePositive) {
  DeviceArray<int32_t> inverse({0, 0, 0, 1, 1, 2, 2});
  DeviceArray<int32_t> counts({INT32_MAX, 5, INT32_MAX, INT32_MAX - 1, 1, 0, -4});
  DeviceArray<int32_t> sums({-1, -1, -1});
  DeviceArray<int64_t> ids_begin({0, 2, 6, 7});
  DeviceArray<int32_t> ranks({0, 1, 2});
  DeviceArray<uint64_t> damaged({kNoDamage});
  const ServedCounts served = {inverse.data(),   7,           counts.data(), sums.data(), 3, 3,
                               ids_begin.data(), ranks.data()};
  ASSERT_TRUE(AddServedCounts(nullptr, served, damaged.data()).ok());
  EXPECT_EQ(sums.Fetch(), (std::vector<int32_t>{INT32_MAX, INT32_MAX, 0}));
  EXPECT_EQ(damaged.Fetch()[0], 1u);
}

}  // namespace
}  // namespace sok
