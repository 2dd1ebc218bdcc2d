#include "cc/cpu/table/bloom_counters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/table/bloom_filter.h"

namespace sok {
namespace {

BloomCounters Make(int64_t max_elements, double p, int bits, bool in_blocks = false) {
  if (in_blocks) return BloomCounters::CreateInBlocks(max_elements, p, bits);
  StatusOr<BloomCounters> made = BloomCounters::Create(max_elements, p, bits);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(made.value());
}

void MustAdd(BloomCounters* counters, int64_t id, int64_t count) {
  const Status status = counters->Reserve({&id, 1});
  EXPECT_TRUE(status.ok()) << status.message();
  counters->Add(id, count);
}

TEST(BloomCountersTest, IsSizedByTheFormula) {
  const BloomCounters counters = Make(1000, 0.01, 16);
  EXPECT_EQ(counters.hashes(), 7);        // log2(100) = 6.64
  EXPECT_EQ(counters.counters(), 10099);  // 7000 / 0.6931
  EXPECT_EQ(counters.blocks(), 316);      // of 32 counters
  EXPECT_EQ(counters.bytes(), 316 * 64);
  EXPECT_EQ(Make(1, 0.9, 8).hashes(), 1);
  EXPECT_EQ(Make(1, 1e-15, 8).hashes(), 50);
}

TEST(BloomCountersTest, ErrorsNameBadValues) {
  for (const int64_t elements : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    const Status status = BloomShape::Check(elements, 0.1, 8);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(elements)), std::string::npos);
  }
  for (const double p : {0.0, -1.0, 1.0, 2.0, std::nan("")}) {
    EXPECT_FALSE(BloomShape::Check(10, p, 8).ok()) << p;
  }
  EXPECT_FALSE(BloomShape::Check(10, 0.1, 12).ok());
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
  for (const bool in_blocks : {false, true}) {
    BloomCounters one = Make(100, 0.01, 16, in_blocks);
    BloomCounters other = Make(100, 0.01, 16, !in_blocks);
    MustAdd(&one, 1, 3);
    MustAdd(&other, 1, 2);
    MustAdd(&other, 2, 400);
    ASSERT_TRUE(other
                    .ForEachNonZeroBlock([&](Span<const int64_t> blocks, Span<const char> bytes) {
                      return one.MergeMax(blocks, bytes);
                    })
                    .ok());
    EXPECT_GE(one.Count(1), 3);
    EXPECT_EQ(one.Count(2), 400);
    const std::vector<char> block(kBloomBlockBytes, 1);
    for (const int64_t outside : {int64_t{-1}, one.blocks(), INT64_MIN, INT64_MAX}) {
      const Status status = one.MergeMax({&outside, 1}, block);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find(std::to_string(outside)), std::string::npos) << status.message();
    }
    const int64_t first = 0;
    EXPECT_FALSE(one.MergeMax({&first, 1}, Span<const char>(block.data(), 63)).ok());
    EXPECT_FALSE(one.MergeMax({}, block).ok());
  }
}

// A filter as an array of numbers, by the definition.
class Reference {
 public:
  explicit Reference(const BloomCounters& shape)
      : hashes_(shape.hashes()), limit_(static_cast<uint64_t>(shape.max_count())), all_(shape.counters()) {}

  void Add(int64_t id, int64_t count) {
    for (const int64_t at : PlacesOf(id))
      all_[at] = std::min(limit_, all_[at] + static_cast<uint64_t>(count));
  }
  int64_t Count(int64_t id) const {
    uint64_t least = limit_;
    for (const int64_t at : PlacesOf(id)) least = std::min(least, all_[at]);
    return static_cast<int64_t>(least);
  }
  const std::vector<uint64_t>& all() const { return all_; }

 private:
  std::set<int64_t> PlacesOf(int64_t id) const {
    int64_t at[kMaxBloomHashes];
    const int count = BloomPlaces(id, hashes_, static_cast<int64_t>(all_.size()), at);
    return std::set<int64_t>(at, at + count);
  }

  int hashes_;
  uint64_t limit_;
  std::vector<uint64_t> all_;
};

// All counters, of blocks that must increase and not be zero.
std::vector<uint64_t> AllOf(const BloomCounters& counters) {
  std::vector<uint64_t> all(counters.counters());
  const int64_t width = counters.counter_bits() / 8;
  int64_t before = -1;
  const Status status = counters.ForEachNonZeroBlock([&](Span<const int64_t> blocks, Span<const char> bytes) {
    EXPECT_EQ(bytes.size(), blocks.size() * kBloomBlockBytes);
    for (int64_t i = 0; i < blocks.size(); ++i) {
      EXPECT_GT(blocks[i], before);
      before = blocks[i];
      const char* const block = bytes.data() + i * kBloomBlockBytes;
      EXPECT_FALSE(IsZeroBlock(block));
      for (int64_t k = 0; k < kBloomBlockBytes / width; ++k) {
        uint64_t counter = 0;
        std::memcpy(&counter, block + k * width, width);
        const int64_t at = blocks[i] * (kBloomBlockBytes / width) + k;
        if (at < counters.counters()) {
          all[at] = counter;
        } else {
          EXPECT_EQ(counter, 0u) << "after the last counter";
        }
      }
    }
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

TEST(BloomCountersTest, ArraysAndBlocksHaveTheCountersOfTheReference) {
  for (const int bits : {8, 16, 32, 64}) {
    for (const bool in_blocks : {false, true}) {
      BloomCounters counters = Make(3000, 0.02, bits, in_blocks);
      Reference expected(counters);
      std::mt19937_64 random(bits);
      std::vector<int64_t> ids = DistinctIds(500, bits);
      for (const int64_t id : HostileIds()) ids.push_back(id);
      for (int round = 0; round < 3000; ++round) {
        // Some ids occur much more often than others.
        const int64_t id = ids[(random() % ids.size()) * (random() % ids.size()) / ids.size()];
        const int64_t count =
            round % 100 == 0 ? counters.max_count() / 3 : static_cast<int64_t>(random() % 4);
        MustAdd(&counters, id, count);
        expected.Add(id, count);
      }
      for (const int64_t id : ids) ASSERT_EQ(counters.Count(id), expected.Count(id)) << id;
      for (const int64_t id : DistinctIds(500, 77)) ASSERT_EQ(counters.Count(id), expected.Count(id)) << id;
      EXPECT_EQ(AllOf(counters), expected.all()) << bits << " bits, in blocks " << in_blocks;
    }
  }
}

TEST(BloomCountersTest, AFilterOfManyElementsTakesMemoryForThoseItHas) {
  for (const int64_t elements : {int64_t{1} << 30, int64_t{1} << 40}) {
    BloomCounters counters = Make(elements, 0.01, 64);
    ASSERT_GT(counters.counters() * 8, int64_t{80} << 30);
    EXPECT_EQ(counters.bytes(), 0);
    const std::vector<int64_t> ids = DistinctIds(5000, 3);
    ASSERT_TRUE(counters.Reserve(ids).ok());
    for (size_t i = 0; i < ids.size(); ++i) counters.Add(ids[i], static_cast<int64_t>(i));
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(counters.Count(ids[i]), static_cast<int64_t>(i));
    for (const int64_t id : DistinctIds(1000, 4)) EXPECT_EQ(counters.Count(id), 0);
    // 7 counters for each id, each in a block of its own.
    EXPECT_LE(counters.bytes(), 7 * 5000 * 128 + 4096);
    int64_t blocks = 0;
    ASSERT_TRUE(counters
                    .ForEachNonZeroBlock([&](Span<const int64_t> piece, Span<const char>) {
                      blocks += piece.size();
                      return OkStatus();
                    })
                    .ok());
    EXPECT_NEAR(blocks, 7 * 4999, 20) << "blocks of the id with the count 0 are zero";
  }
}

TEST(CounterBlocksTest, ReservesOnceAndReadsInOrderPartByPart) {
  CounterBlocks blocks;
  std::vector<int64_t> numbers = {7, 0, 7, (int64_t{1} << 53) + 1, 3, 0};
  for (int64_t i = 0; i < 3000; ++i) numbers.push_back((i * 7919) % 100003 + 10);
  ASSERT_TRUE(blocks.Reserve(numbers).ok());
  const int64_t bytes = blocks.bytes();
  ASSERT_TRUE(blocks.Reserve(numbers).ok());
  EXPECT_EQ(blocks.bytes(), bytes);
  std::vector<char*> addresses(numbers.size());
  blocks.Find(numbers, Span<char*>(addresses));
  EXPECT_EQ(addresses[0], addresses[2]);
  std::set<int64_t> expected(numbers.begin(), numbers.end());
  for (size_t i = 0; i < numbers.size(); ++i) addresses[i][numbers[i] % 64] = 1;
  expected.erase(3);
  addresses[4][3] = 0;  // zero again
  for (const int64_t at_a_time : {int64_t{1} << 22, int64_t{1000}, int64_t{250}}) {
    std::vector<int64_t> found;
    const Status status = blocks.ForEachNonZero(
        [&](Span<const int64_t> piece, Span<const char> contents) {
          for (int64_t i = 0; i < piece.size(); ++i) {
            found.push_back(piece[i]);
            EXPECT_EQ(contents[i * 64 + piece[i] % 64], 1);
          }
          return OkStatus();
        },
        at_a_time);
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(found, std::vector<int64_t>(expected.begin(), expected.end())) << at_a_time;
  }
  const Status failed =
      blocks.ForEachNonZero([](Span<const int64_t>, Span<const char>) { return DataLoss("full"); });
  EXPECT_EQ(failed.message(), "full");
  const int64_t absent = 12345678;
  char* address = addresses[0];
  blocks.Find({&absent, 1}, {&address, 1});
  EXPECT_EQ(address, nullptr);
}

}  // namespace
}  // namespace sok
