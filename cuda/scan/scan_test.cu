// Ranks of flags, sums and sorts equal those of plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cuda/base/allocators.h"
#include "cuda/base/launch.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/item_sorter.h"

namespace sok {
namespace {

__global__ void ReadRanksKernel(FlagRanks ranks, int64_t n, int32_t* before, int32_t* flagged) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i <= n; i += ThreadsOfGrid()) {
    before[i] = ranks.Before(i);
    if (i < n) flagged[i] = ranks.IsFlagged(i) ? 1 : 0;
  }
}

// The flags of an array; counts how often each was read.
struct FlagOf {
  const int32_t* flags;
  int32_t* asked;
  __device__ bool operator()(int64_t i) const {
    ++asked[i];
    return flags[i] != 0;
  }
};

// Flags of which `per_mille` per thousand are set.
std::vector<int32_t> Flags(int64_t n, unsigned per_mille, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> flags(n);
  for (int32_t& flag : flags) flag = random() % 1000 < per_mille ? 1 : 0;
  return flags;
}

void ExpectRanks(const std::vector<int32_t>& flags) {
  const int64_t n = static_cast<int64_t>(flags.size());
  std::vector<int32_t> expected = {0};
  for (const int32_t flag : flags) expected.push_back(expected.back() + flag);

  AsyncAllocator allocator;
  DeviceArray<int32_t> array(flags);
  DeviceArray<int32_t> asked(std::vector<int32_t>(n, 0));
  DeviceArray<int32_t> before(std::vector<int32_t>(n + 1, -1));
  DeviceArray<int32_t> flagged(std::vector<int32_t>(n, -1));
  RankedFlags ranked;
  const Status status =
      RankFlags("Flags", nullptr, &allocator, n, FlagOf{array.data(), asked.data()}, &ranked);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(Launch("ReadRanks", nullptr, ShapeFor(n + 1), ReadRanksKernel, ranked.ranks(), n, before.data(),
                     flagged.data())
                  .ok());
  ASSERT_EQ(before.Fetch(), expected);
  ASSERT_EQ(flagged.Fetch(), flags);
  ASSERT_EQ(asked.Fetch(), std::vector<int32_t>(n, 1));
}

TEST(FlagRanksTest, AgreesWithALoop) {
  for (const int64_t n : {0, 1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2048, 5000}) {
    for (const unsigned per_mille : {0, 20, 500, 1000}) {
      SCOPED_TRACE(testing::Message() << n << " flags, " << per_mille << " of 1000 set");
      ExpectRanks(Flags(n, per_mille, static_cast<unsigned>(n)));
    }
  }
}

struct NumberAt {
  const uint64_t* numbers;
  __device__ uint64_t operator()(int64_t item) const { return numbers[item]; }
};

// The items 0, 1, ... sorted by the low `bits` bits of their numbers, and before that by those of `others`.
std::vector<int32_t> SortedItems(const std::vector<uint64_t>& numbers, const std::vector<uint64_t>& others,
                                 int bits) {
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  std::vector<int32_t> items(numbers.size());
  std::iota(items.begin(), items.end(), 0);
  for (const std::vector<uint64_t>* key : {&others, &numbers}) {
    std::stable_sort(items.begin(), items.end(), [&](int32_t a, int32_t b) {
      return ((*key)[static_cast<size_t>(a)] & mask) < ((*key)[static_cast<size_t>(b)] & mask);
    });
  }
  return items;
}

void ExpectSorted(int64_t n, int bits) {
  std::mt19937_64 random(static_cast<uint64_t>(n * 100 + bits));
  // Many of these are equal, in all bits or in one of the two words.
  const uint64_t values[] = {0, 1, 2, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 32, 0xffffffffu};
  std::vector<uint64_t> numbers(static_cast<size_t>(n));
  std::vector<uint64_t> others(static_cast<size_t>(n));
  for (uint64_t& number : numbers) number = random() % 2 == 0 ? values[random() % 7] : random();
  for (uint64_t& other : others) other = random();

  AsyncAllocator allocator;
  DeviceArray<uint64_t> device_numbers(numbers);
  DeviceArray<uint64_t> device_others(others);
  ItemSorter sorter(nullptr, &allocator, n);
  ASSERT_TRUE(sorter.Reserve().ok());
  std::vector<int32_t> items(static_cast<size_t>(n));
  std::iota(items.begin(), items.end(), 0);
  const size_t bytes = items.size() * sizeof(int32_t);
  ASSERT_EQ(cudaMemcpy(sorter.items(), items.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_TRUE(sorter.SortBy(NumberAt{device_others.data()}, bits).ok());
  ASSERT_TRUE(sorter.SortBy(NumberAt{device_numbers.data()}, bits).ok());
  ASSERT_EQ(cudaMemcpy(items.data(), sorter.items(), bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  ASSERT_EQ(items, SortedItems(numbers, others, bits));
}

TEST(ItemSorterTest, AgreesWithStableSorts) {
  for (const int64_t n : {1, 2, 31, 256, 257, 1000}) {
    for (const int bits : {1, 31, 32, 33, 63, 64}) {
      SCOPED_TRACE(testing::Message() << n << " items, " << bits << " bits");
      ExpectSorted(n, bits);
    }
  }
}

TEST(ExclusiveSumTest, AgreesWithALoop) {
  for (const int64_t n : {0, 1, 31, 32, 33, 511, 512, 513, 1024, 1700}) {
    SCOPED_TRACE(n);
    std::mt19937 random(static_cast<unsigned>(n));
    std::vector<int32_t> values(n);
    for (int32_t& value : values) value = static_cast<int32_t>(random() % 2000) - 500;
    std::vector<int32_t> expected;
    int32_t sum = 0;
    for (const int32_t value : values) expected.push_back(std::exchange(sum, sum + value));
    DeviceArray<int32_t> array(values);
    ASSERT_TRUE(ExclusiveSum(nullptr, array.data(), n).ok());
    ASSERT_EQ(array.Fetch(), expected);
  }
}

}  // namespace
}  // namespace sok
