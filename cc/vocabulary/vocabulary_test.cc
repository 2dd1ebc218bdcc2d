#include "cc/vocabulary/vocabulary.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/base/thread_pool.h"

namespace sok {
namespace {

// The arrays of a vocabulary.
struct Arrays {
  explicit Arrays(int64_t max) : keys(max + 1, 0), counts(max + 1, 0), slots(VocabularySlots(max), 0) {
    keys[0] = kUnknownKey;
  }
  Vocabulary view() { return {keys, counts, slots, &size}; }

  std::vector<int64_t> keys, counts;
  std::vector<int32_t> slots;
  int64_t size = 0;
};

// A vocabulary in a std::map.
class Reference {
 public:
  explicit Reference(int64_t max) : max_(max), counts(max + 1, 0) {}

  int64_t Find(int64_t key) const {
    const auto found = numbers_.find(key);
    return found == numbers_.end() ? 0 : found->second;
  }
  int64_t Add(int64_t key, int64_t occurrences) {
    const int64_t next = static_cast<int64_t>(numbers_.size()) + 1;
    if (key != kUnknownKey && next <= max_) numbers_.emplace(key, next);
    counts[Find(key)] += occurrences;
    return Find(key);
  }

 private:
  int64_t max_;
  std::map<int64_t, int64_t> numbers_;

 public:
  std::vector<int64_t> counts;
};

std::vector<int64_t> Find(Arrays* arrays, const std::vector<int64_t>& keys) {
  InlineExecutor executor;
  std::vector<int64_t> numbers(keys.size(), -7);
  EXPECT_TRUE(FindInVocabulary(arrays->view(), &executor, keys, Span<int64_t>(numbers)).ok());
  return numbers;
}

std::vector<int64_t> Add(Arrays* arrays, const std::vector<int64_t>& keys, Executor* executor,
                         const std::vector<int64_t>& occurrences = {}) {
  std::vector<int64_t> numbers(keys.size(), -7);
  EXPECT_TRUE(AddToVocabulary(arrays->view(), executor, keys, occurrences, Span<int64_t>(numbers)).ok());
  return numbers;
}

TEST(VocabularyTest, KeysAreNumberedInTheOrderOfTheirFirstOccurrence) {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads, /*min_block_ns=*/0);
    for (const int64_t max : {1, 2, 7, 100, 1000, 5000}) {
      Arrays arrays(max);
      Reference reference(max);
      for (uint64_t batch = 0; batch < 6; ++batch) {
        std::vector<int64_t> keys = batch % 2 == 0 ? RandomIds(777, 2000, batch) : HostileIds();
        if (batch == 4) keys = ZipfIds(3000, 5000, 1.05, batch);
        std::vector<int64_t> before, expected;
        for (const int64_t key : keys) before.push_back(reference.Find(key));
        EXPECT_EQ(Find(&arrays, keys), before);
        for (const int64_t key : keys) expected.push_back(reference.Add(key, 1));
        EXPECT_EQ(Add(&arrays, keys, &pool), expected);
        EXPECT_EQ(Find(&arrays, keys), expected);
      }
      EXPECT_EQ(arrays.counts, reference.counts);
      for (int64_t number = 1; number <= arrays.size; ++number) {
        EXPECT_EQ(reference.Find(arrays.keys[number]), number);
      }
    }
  }
}

TEST(VocabularyTest, OccurrencesAreCounted) {
  InlineExecutor executor;
  Arrays arrays(2);
  EXPECT_EQ(Add(&arrays, {5, 6, 7, 5, -1}, &executor, {10, 20, 30, 40, 50}),
            (std::vector<int64_t>{1, 2, 0, 1, 0}));
  EXPECT_EQ(arrays.counts, (std::vector<int64_t>{80, 50, 20}));
  EXPECT_TRUE(Add(&arrays, {}, &executor).empty());
}

TEST(VocabularyTest, ThreadsFindAtTheSameTime) {
  Arrays arrays(500);
  ThreadPool pool(2);
  const std::vector<int64_t> keys = RandomIds(2000, 900, 1);
  const std::vector<int64_t> numbers = Add(&arrays, keys, &pool);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { EXPECT_EQ(Find(&arrays, keys), numbers); });
  for (std::thread& thread : threads) thread.join();
}

TEST(VocabularyTest, DamagedArraysAreRefused) {
  InlineExecutor executor;
  const std::vector<int64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto codes = [&](Arrays* arrays) {
    std::vector<int64_t> numbers(keys.size());
    const Span<int64_t> out(numbers);
    const StatusCode found = FindInVocabulary(arrays->view(), &executor, keys, out).code();
    EXPECT_EQ(AddToVocabulary(arrays->view(), &executor, keys, {}, out).code(), found);
    return found;
  };
  for (const int64_t size : {int64_t{-1}, int64_t{5}, std::numeric_limits<int64_t>::max()}) {
    Arrays arrays(4);
    arrays.size = size;
    EXPECT_EQ(codes(&arrays), StatusCode::kDataLoss);
  }
  for (const int32_t slot : {-1, 4, std::numeric_limits<int32_t>::max()}) {
    Arrays arrays(4);
    arrays.size = 3;
    std::fill(arrays.slots.begin(), arrays.slots.end(), slot);
    EXPECT_EQ(codes(&arrays), StatusCode::kDataLoss);
  }
  // No slot is free, so that a search would have no end.
  Arrays full(4);
  full.size = 4;
  std::fill(full.slots.begin(), full.slots.end(), 2);
  EXPECT_EQ(codes(&full), StatusCode::kDataLoss);

  Arrays lengths(4);
  lengths.slots.pop_back();
  EXPECT_EQ(codes(&lengths), StatusCode::kInvalidArgument);
  Arrays counts(4);
  counts.counts.push_back(0);
  EXPECT_EQ(codes(&counts), StatusCode::kInvalidArgument);
  Arrays none(4);
  none.keys.clear();
  EXPECT_EQ(codes(&none), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sok
