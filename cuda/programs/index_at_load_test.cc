// The index at loads up to its maximum, with as many keys as fit into memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/hash.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/index/key_index.h"
#include "cuda/programs/testing/test_size.h"

namespace sok {
namespace {

// Key number i of a set; sets have no keys in common.
int64_t KeyOf(int64_t i, uint64_t set) {
  return static_cast<int64_t>(Mix64(2 * static_cast<uint64_t>(i) + set));
}
constexpr uint64_t kPresent = 0, kOther = 1;

// Bytes per key: its place in the index at the lowest load, its entries in the arrays of keys and rows, and a
// reserve.
constexpr int64_t kBytesOfKey = 64;

class IndexAtLoadTest : public testing::TestWithParam<double> {
 protected:
  void SetUp() override {
    n_ = BySize<int64_t>(2000, 3'000'000, int64_t{1} << 27);
    n_ = std::min(n_, free_bytes_of_tests / kBytesOfKey);
  }

  // Keys [first, first + n) of a set on the device.
  DeviceArray<int64_t> Keys(int64_t first, int64_t n, uint64_t set) {
    std::vector<int64_t> keys(n);
    for (int64_t i = 0; i < n; ++i) keys[i] = KeyOf(first + i, set);
    return DeviceArray<int64_t>(keys);
  }

  // Processes keys in pieces, so that they take little memory compared with the index.
  template <typename Work>
  void ForPieces(const Work& work) {
    const int64_t piece = BySize<int64_t>(700, 1'000'000, 1 << 24);
    for (int64_t first = 0; first < n_; first += piece) work(first, std::min(piece, n_ - first));
  }

  void Insert(KeyIndex* index, int64_t first, int64_t n) {
    DeviceArray<int64_t> keys = Keys(first, n, kPresent);
    std::vector<int64_t> rows(n);
    for (int64_t i = 0; i < n; ++i) rows[i] = first + i;
    DeviceArray<int64_t> device_rows(rows);
    ASSERT_TRUE(InsertKeys(nullptr, index->view(), keys.data(), device_rows.data(), n).ok());
    ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    index->CountInserted(n);
  }

  // Expects that key i has the row expected(i).
  template <typename Expected>
  void ExpectRows(const KeyIndex& index, int64_t first, int64_t n, uint64_t set, const Expected& expected) {
    DeviceArray<int64_t> keys = Keys(first, n, set);
    DeviceArray<int64_t> rows(std::vector<int64_t>(n, -7));
    ASSERT_TRUE(FindKeys(nullptr, index.view(), keys.data(), n, rows.data()).ok());
    const std::vector<int64_t> found = rows.Fetch();
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i) wrong += found[i] != expected(first + i) ? 1 : 0;
    EXPECT_EQ(wrong, 0) << "of the keys from number " << first;
  }

  int64_t n_ = 0;
  AsyncAllocator allocator_;
};

TEST_P(IndexAtLoadTest, FindsInsertsAndErases) {
  KeyIndex index(&allocator_, GetParam());
  ASSERT_TRUE(index.Reserve(nullptr, n_).ok());
  ForPieces([&](int64_t first, int64_t n) { Insert(&index, first, n); });
  EXPECT_GT(static_cast<double>(n_) / static_cast<double>(index.places()), 0.99 * GetParam());

  const auto own_row = [](int64_t i) { return i; };
  const auto none = [](int64_t) { return kAbsentRow; };
  ForPieces([&](int64_t first, int64_t n) {
    ExpectRows(index, first, n, kPresent, own_row);
    ExpectRows(index, first, n, kOther, none);
  });

  // Erases the first half of every piece, and inserts it again.
  ForPieces([&](int64_t first, int64_t n) {
    const int64_t half = n / 2;
    DeviceArray<int64_t> keys = Keys(first, half, kPresent);
    DeviceArray<int64_t> rows(std::vector<int64_t>(half, -7));
    ASSERT_TRUE(EraseKeys(nullptr, index.view(), keys.data(), half, rows.data()).ok());
    const std::vector<int64_t> erased = rows.Fetch();
    for (int64_t i = 0; i < half; ++i) ASSERT_EQ(erased[i], first + i);
    index.CountErased(nullptr, half);
    ExpectRows(index, first, n, kPresent, [&](int64_t i) { return i < first + half ? kAbsentRow : i; });
  });
  ForPieces([&](int64_t first, int64_t n) { Insert(&index, first, n / 2); });
  ForPieces([&](int64_t first, int64_t n) { ExpectRows(index, first, n, kPresent, own_row); });
  EXPECT_EQ(index.size(), n_);
}

INSTANTIATE_TEST_SUITE_P(Loads, IndexAtLoadTest, testing::Values(0.5, 0.75, 0.9, 0.95),
                         [](const testing::TestParamInfo<double>& info) {
                           return "Percent" + std::to_string(static_cast<int>(100 * info.param + 0.5));
                         });

}  // namespace
}  // namespace sok
