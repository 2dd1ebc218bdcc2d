// The chosen rows are the first ones of a sort of all rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "cuda/base/allocators.h"
#include "cuda/base/launch.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/table/least_used.h"

namespace sok {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

__global__ void WriteColumnKernel(const int64_t* values, int64_t n, ColumnView<int64_t> column) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) column[i] = values[i];
}

struct Rows {
  std::vector<int64_t> keys;
  std::vector<int64_t> last_used;
  std::vector<int64_t> frequency;
  std::vector<bool> is_candidate;

  int64_t size() const { return static_cast<int64_t>(keys.size()); }
};

// The numbers of the candidates, least priority first.
std::vector<int64_t> Sorted(const Rows& rows, bool by_frequency) {
  std::vector<int64_t> sorted;
  for (int64_t row = 0; row < rows.size(); ++row) {
    if (rows.is_candidate[row]) sorted.push_back(row);
  }
  const auto priority = [&](int64_t row) {
    return std::make_tuple(by_frequency ? rows.frequency[row] : 0, rows.last_used[row], rows.keys[row]);
  };
  std::sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) { return priority(a) < priority(b); });
  return sorted;
}

class ChooseLeastTest : public ::testing::TestWithParam<bool> {
 protected:
  void WriteColumn(const std::vector<int64_t>& values, DeviceColumn<int64_t>* column) {
    const auto n = static_cast<int64_t>(values.size());
    ASSERT_TRUE(column->Reserve(nullptr, n).ok());
    DeviceArray<int64_t> array(values);
    ASSERT_TRUE(
        Launch("WriteColumn", nullptr, ShapeFor(n), WriteColumnKernel, array.data(), n, column->view()).ok());
    ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  void ExpectLeast(const Rows& rows, const std::vector<int64_t>& counts) {
    const bool by_frequency = GetParam();
    DeviceColumn<int64_t> last_used(&allocator_);
    DeviceColumn<int64_t> frequency(&allocator_);
    WriteColumn(rows.last_used, &last_used);
    if (by_frequency) WriteColumn(rows.frequency, &frequency);
    DeviceColumn<int64_t> keys(&allocator_);
    WriteColumn(rows.keys, &keys);
    RowPriorities priorities;
    priorities.keys = keys.view();
    priorities.last_used = last_used.view();
    priorities.uses = *std::max_element(rows.last_used.begin(), rows.last_used.end());
    priorities.by_frequency = by_frequency;
    if (by_frequency) priorities.frequency = frequency.view();
    const std::vector<int64_t> sorted = Sorted(rows, by_frequency);
    for (const int64_t n : counts) {
      std::vector<uint32_t> candidates(static_cast<size_t>((rows.size() + 31) / 32));
      std::vector<uint32_t> expected(candidates.size());
      for (const int64_t row : sorted) candidates[row / 32] |= 1u << (row % 32);
      for (int64_t i = 0; i < n; ++i) expected[sorted[i] / 32] |= 1u << (sorted[i] % 32);
      DeviceArray<uint32_t> marks(candidates);
      const Status status = ChooseLeast(nullptr, &allocator_, priorities, rows.size(), n, marks.data());
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(marks.Fetch(), expected) << n << " of " << sorted.size();
    }
  }

  AsyncAllocator allocator_;
};

// Numbers up to `most`, in all magnitudes.
int64_t AnyNumber(int64_t most, std::mt19937_64* random) {
  return std::min(most, static_cast<int64_t>((*random)() >> (1 + (*random)() % 63)));
}

Rows RandomRows(int64_t n, int64_t last_uses, int64_t frequencies, uint64_t seed) {
  std::mt19937_64 random(seed);
  Rows rows;
  for (int64_t row = 0; row < n; ++row) {
    rows.keys.push_back(static_cast<int64_t>(random()));
    rows.last_used.push_back(AnyNumber(last_uses, &random));
    rows.frequency.push_back(AnyNumber(frequencies, &random));
    rows.is_candidate.push_back(random() % 4 != 0);
  }
  return rows;
}

TEST_P(ChooseLeastTest, NumbersOfAllMagnitudes) {
  const Rows rows = RandomRows(700, kMax, kMax, /*seed=*/1);
  const auto candidates = static_cast<int64_t>(Sorted(rows, false).size());
  ExpectLeast(rows, {1, 350, candidates});
}

// If the other numbers are equal, signed keys decide.
TEST_P(ChooseLeastTest, ManyEqualNumbers) {
  for (const int64_t most : {0, 3}) ExpectLeast(RandomRows(300, most, most, 2), {1, 100});
  Rows rows = RandomRows(8, 0, 0, 3);
  rows.keys = {-1, 0, 1, std::numeric_limits<int64_t>::min(), kMax, -2048, 2048, 2047};
  rows.is_candidate.assign(8, true);
  ExpectLeast(rows, {1, 3, 6});
}

// Consecutive numbers of every length, which differ only in the digits after the first.
TEST_P(ChooseLeastTest, NeighboursOfPowersOfTwo) {
  Rows rows;
  for (int bits = 0; bits < 63; ++bits) {
    for (const int64_t near : {-1, 0, 1}) {
      const int64_t number = (int64_t{1} << bits) + near;
      rows.keys.push_back(-3 * bits - near);
      rows.last_used.push_back(number);
      rows.frequency.push_back(number);
      rows.is_candidate.push_back(true);
    }
  }
  ExpectLeast(rows, {19, 91, 187});
}

INSTANTIATE_TEST_SUITE_P(Orders, ChooseLeastTest, testing::Bool(), [](const auto& by_frequency) {
  return by_frequency.param ? "ByFrequency" : "ByLastUse";
});

}  // namespace
}  // namespace sok
