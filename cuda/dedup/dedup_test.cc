// Distinct ids, their order and their occurrences equal those of the reference, table by table.
#include "cuda/dedup/dedup.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/base/testing/test_ids.h"
#include "cc/cpu/dedup/testing/dedup_reference.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"

namespace sok {
namespace {

using Tables = std::vector<std::vector<int64_t>>;

struct Result {
  std::vector<int64_t> begin;
  std::vector<int32_t> inverse;
  std::vector<int32_t> position;
  std::vector<int64_t> keys;
  std::vector<int32_t> counts;
};

Result Reference(const Tables& tables) {
  Result result;
  result.begin = {0};
  int32_t before = 0;  // occurrences of the tables before
  for (const std::vector<int64_t>& ids : tables) {
    const auto first = static_cast<int32_t>(result.keys.size());
    const ReferenceUnique unique = ReferenceDedup(ids);
    for (const int64_t key : unique.unique) result.keys.push_back(key);
    result.begin.push_back(static_cast<int64_t>(result.keys.size()));
    result.counts.resize(result.keys.size(), 0);
    for (size_t i = 0; i < ids.size(); ++i) {
      const int32_t u = first + unique.inverse[i];
      if (result.counts[u]++ == 0) result.position.push_back(before + static_cast<int32_t>(i));
      result.inverse.push_back(u);
    }
    before += static_cast<int32_t>(ids.size());
  }
  return result;
}

// The result of Dedup if the host's bound on the number of ids is too high by `spare`.
Result Run(const Tables& tables, int64_t spare = 0) {
  std::vector<int64_t> keys;
  std::vector<int64_t> table_begin = {0};
  for (const std::vector<int64_t>& ids : tables) {
    keys.insert(keys.end(), ids.begin(), ids.end());
    table_begin.push_back(static_cast<int64_t>(keys.size()));
  }
  const auto n = static_cast<int64_t>(keys.size());
  const int64_t max = n + spare;
  keys.resize(max, 4711);

  DeviceArray<int64_t> device_keys(keys);
  DeviceArray<int64_t> device_begin(table_begin);
  DeviceArray<int64_t> begin(std::vector<int64_t>(table_begin.size(), -1));
  DeviceArray<int32_t> inverse(std::vector<int32_t>(max, -1));
  DeviceArray<int32_t> position(std::vector<int32_t>(max, -1));
  DeviceArray<int64_t> unique(std::vector<int64_t>(max, -1));
  DeviceArray<int32_t> counts(std::vector<int32_t>(max, -1));
  AsyncAllocator allocator;
  const Occurrences occurrences = {device_keys.data(), device_begin.data(), static_cast<int>(tables.size()),
                                   max};
  const UniqueIds distinct = {begin.data(), inverse.data(), position.data(), unique.data(), counts.data()};
  const Status status = Dedup(nullptr, &allocator, occurrences, distinct);
  EXPECT_TRUE(status.ok()) << status.message();

  Result result = {begin.Fetch(), inverse.Fetch(), position.Fetch(), unique.Fetch(), counts.Fetch()};
  const int64_t num_unique = result.begin.back();
  result.inverse.resize(n);
  result.position.resize(num_unique);
  result.keys.resize(num_unique);
  result.counts.resize(num_unique);
  return result;
}

void ExpectReference(const Tables& tables, int64_t spare = 0) {
  const Result expected = Reference(tables);
  const Result result = Run(tables, spare);
  ASSERT_EQ(result.begin, expected.begin);
  ASSERT_EQ(result.inverse, expected.inverse);
  ASSERT_EQ(result.position, expected.position);
  ASSERT_EQ(result.keys, expected.keys);
  ASSERT_EQ(result.counts, expected.counts);
}

// The inverse of Mix64.
uint64_t Unmix64(uint64_t x) {
  x ^= x >> 31 ^ x >> 62;
  x *= 0x319642b2d24d8ec3u;
  x ^= x >> 27 ^ x >> 54;
  x *= 0x96de1b173f119089u;
  x ^= x >> 30 ^ x >> 60;
  return x - 0x9e3779b97f4a7c15u;
}

// Distinct ids of table 0 whose search starts at the same slot: the last one, whatever the number of slots.
std::vector<int64_t> IdsOfOneSlot(int64_t n) {
  std::vector<int64_t> ids(n);
  for (int64_t i = 0; i < n; ++i) {
    ids[i] = static_cast<int64_t>(Unmix64(static_cast<uint64_t>(i) << 32 | 0xffffffffu));
  }
  return ids;
}

std::vector<int64_t> Repeated(const std::vector<int64_t>& ids, int64_t n) {
  std::vector<int64_t> result(n);
  for (int64_t i = 0; i < n; ++i) result[i] = ids[Mix64(i) % ids.size()];
  return result;
}

std::vector<std::pair<std::string, std::vector<int64_t>>> Batches() {
  std::vector<int64_t> sequence(1500);
  for (int64_t i = 0; i < 1500; ++i) sequence[i] = i - 700;
  std::vector<int64_t> backwards = sequence;
  backwards.insert(backwards.end(), sequence.rbegin(), sequence.rend());
  return {{"none", {}},
          {"one", {-1}},
          {"hostile, once", HostileIds()},
          {"hostile, repeated", Repeated(HostileIds(), 2000)},
          {"one id", std::vector<int64_t>(3000, INT64_MIN)},
          {"one slot", IdsOfOneSlot(150)},
          {"one slot, repeated", Repeated(IdsOfOneSlot(60), 1000)},
          {"distinct", DistinctIds(2000, 1)},
          {"there and back", backwards},
          {"random", RandomIds(3000, 1000, 3)},
          {"skewed", ZipfIds(5000, 4000, 1.05, 4)},
          {"very skewed", ZipfIds(2000, 500, 2.0, 5)}};
}

TEST(Unmix64Test, IsTheInverseOfMix64) {
  for (const int64_t id : DistinctIds(100, 9)) {
    EXPECT_EQ(Mix64(Unmix64(static_cast<uint64_t>(id))), static_cast<uint64_t>(id));
  }
}

TEST(DedupTest, OneTableAgreesWithTheReference) {
  for (const auto& [name, ids] : Batches()) {
    SCOPED_TRACE(name);
    ExpectReference({ids});
  }
}

TEST(DedupTest, SizesAroundThoseOfBlocksAndTiles) {
  for (const int64_t n : {2, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 2048}) {
    SCOPED_TRACE(n);
    ExpectReference({RandomIds(n, n / 2 + 1, n)});
  }
}

TEST(DedupTest, EqualIdsOfTwoTablesAreDistinct) {
  ExpectReference({{7, 8, 7}, {8, 8}, {}, {7}});
  const std::vector<int64_t> ids = ZipfIds(700, 300, 1.05, 1);
  ExpectReference({ids, ids, ids, ids, ids});
}

TEST(DedupTest, TablesOfManyKindsAgreeWithTheReference) {
  Tables tables;
  for (const auto& [name, ids] : Batches()) {
    tables.emplace_back(ids.begin(), ids.begin() + std::min<size_t>(ids.size(), 900));
  }
  ExpectReference(tables);
  ExpectReference({{}, {}, {}});
  ExpectReference({{}, {5, 5}, {}, {}});
  ExpectReference(Tables(100, {1, 2, 1}));
  ExpectReference(Tables(600));
}

TEST(DedupTest, TablesThatAreNotMerged) {
  DeviceArray<int64_t> keys({5, 6, 5, 5, 5, 6, 6, 5});
  DeviceArray<int64_t> table_begin({0, 3, 6, 6, 8});
  DeviceArray<uint8_t> is_merged({1, 0, 0, 1});
  DeviceArray<int64_t> begin(std::vector<int64_t>(5, -1));
  DeviceArray<int32_t> inverse(std::vector<int32_t>(8, -1));
  DeviceArray<int32_t> position(std::vector<int32_t>(8, -1));
  DeviceArray<int32_t> counts(std::vector<int32_t>(8, -1));
  AsyncAllocator allocator;
  Occurrences occurrences = {keys.data(), table_begin.data(), 4, 8};
  occurrences.is_merged = is_merged.data();
  ASSERT_TRUE(Dedup(nullptr, &allocator, occurrences,
                    {begin.data(), inverse.data(), position.data(), nullptr, counts.data()})
                  .ok());
  EXPECT_EQ(begin.Fetch(), (std::vector<int64_t>{0, 2, 5, 5, 7}));
  EXPECT_EQ(inverse.Fetch(), (std::vector<int32_t>{0, 1, 0, 2, 3, 4, 5, 6}));
  EXPECT_EQ(position.Fetch(), (std::vector<int32_t>{0, 1, 3, 4, 5, 6, 7, -1}));
  EXPECT_EQ(counts.Fetch(), (std::vector<int32_t>{2, 1, 1, 1, 1, 1, 1, 0}));
}

TEST(DedupTest, WithFewerIdsThanTheHostKnowsOf) {
  ExpectReference({{}}, 50);
  ExpectReference({{4711, 1}, {}, {4711}}, 5);
  ExpectReference({RandomIds(1000, 400, 6), RandomIds(1000, 400, 7)}, 1500);
}

TEST(DedupTest, KeysAndCountsNeedNotBeWanted) {
  DeviceArray<int64_t> keys({5, 6, 5});
  DeviceArray<int64_t> table_begin({0, 3});
  DeviceArray<int64_t> begin({-1, -1});
  DeviceArray<int32_t> inverse({-1, -1, -1});
  DeviceArray<int32_t> position({-1, -1, -1});
  AsyncAllocator allocator;
  ASSERT_TRUE(Dedup(nullptr, &allocator, {keys.data(), table_begin.data(), 1, 3},
                    {begin.data(), inverse.data(), position.data(), nullptr, nullptr})
                  .ok());
  EXPECT_EQ(begin.Fetch(), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(inverse.Fetch(), (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(position.Fetch(), (std::vector<int32_t>{0, 1, -1}));
}

// Only the size matters: nothing is read and no memory is allocated.
TEST(DedupLimitsTest, MorePositionsThanInt32HoldsAreRefused) {
  AsyncAllocator allocator;
  const Status status = Dedup(nullptr, &allocator, {nullptr, nullptr, 1, int64_t{1} << 31}, {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("2147483648"), std::string::npos) << status.message();
}

TEST(DedupLimitsTest, MemoryThatIsNotThereIsAnError) {
  LimitedAllocator none;
  none.limit = 0;
  const Status status = Dedup(nullptr, &none, {nullptr, nullptr, 1, 10}, {});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

void ExpectReferenceSegments(const std::vector<int32_t>& inverse, int64_t unique) {
  const Segments expected = ReferenceSegments(inverse, unique);
  DeviceArray<int32_t> device_inverse(inverse);
  DeviceArray<int32_t> begin(std::vector<int32_t>(unique + 1, -1));
  DeviceArray<int32_t> positions(std::vector<int32_t>(inverse.size(), -1));
  AsyncAllocator allocator;
  const Status status =
      SortIntoSegments(nullptr, &allocator, device_inverse.data(), static_cast<int64_t>(inverse.size()),
                       unique, {begin.data(), positions.data()});
  ASSERT_TRUE(status.ok()) << status.message();
  const std::vector<int32_t> found = begin.Fetch();
  ASSERT_EQ(std::vector<int64_t>(found.begin(), found.end()), expected.offsets);
  ASSERT_EQ(positions.Fetch(), expected.positions);
}

TEST(SegmentsTest, OfBatchesAgreeWithTheReference) {
  const std::vector<std::vector<int64_t>> batches = {{},
                                                     {5},
                                                     HostileIds(),
                                                     ZipfIds(5000, 3000, 1.05, 1),
                                                     RandomIds(3000, 600, 2),
                                                     DistinctIds(2000, 3),
                                                     std::vector<int64_t>(1000, 7)};
  for (const std::vector<int64_t>& ids : batches) {
    SCOPED_TRACE(ids.size());
    const ReferenceUnique unique = ReferenceDedup(ids);
    ExpectReferenceSegments(unique.inverse, static_cast<int64_t>(unique.unique.size()));
  }
}

// The sort uses only the bits that the numbers have.
TEST(SegmentsTest, NumbersOfIdsAroundPowersOfTwo) {
  for (const int64_t unique : {1, 2, 3, 4, 255, 256, 257, 1023, 1024, 1025}) {
    SCOPED_TRACE(unique);
    std::mt19937 random(static_cast<unsigned>(unique));
    std::vector<int32_t> inverse(700);
    for (int32_t& u : inverse) u = static_cast<int32_t>(random() % unique);
    inverse[300] = static_cast<int32_t>(unique - 1);
    ExpectReferenceSegments(inverse, unique);
  }
}

TEST(SegmentsTest, IdsWithoutOccurrencesHaveEmptySegments) {
  ExpectReferenceSegments({3, 1, 3}, 5);
  ExpectReferenceSegments({}, 7);
  ExpectReferenceSegments({}, 1000);
  ExpectReferenceSegments({400, 0, 400, 16, 999}, 1000);
  ExpectReferenceSegments({0}, 3000);
}

TEST(SegmentsLimitsTest, MorePositionsThanInt32HoldsAreRefused) {
  AsyncAllocator allocator;
  const Status status = SortIntoSegments(nullptr, &allocator, nullptr, int64_t{1} << 31, 1, {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("2147483648"), std::string::npos) << status.message();
}

}  // namespace

}  // namespace sok
