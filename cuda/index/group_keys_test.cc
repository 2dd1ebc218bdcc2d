// One launch for the keys of all tables of a group.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/index/key_index.h"

namespace sok {
namespace {

// A group of tables with sizes[t] keys each.
class Group {
 public:
  Group(DeviceAllocator* allocator, const std::vector<int64_t>& sizes, bool with_list) : begin_host_(1, 0) {
    int64_t n = 0;
    for (const int64_t size : sizes) begin_host_.push_back(n += size);
    for (const int64_t size : sizes) {
      indexes_.emplace_back(allocator);
      EXPECT_TRUE(indexes_.back().Reserve(nullptr, size).ok());
      views_host_.push_back(indexes_.back().view());
    }
    // With a list, the keys are scattered in a longer array.
    const int64_t length = with_list ? 2 * n + 3 : n;
    key_at.resize(length, 4711);
    for (int64_t i = 0; i < n; ++i) at.push_back(static_cast<int32_t>(i));
    if (with_list) {
      std::mt19937_64 random(n);
      at.resize(length);
      for (int64_t i = 0; i < length; ++i) at[i] = static_cast<int32_t>(i);
      std::shuffle(at.begin(), at.end(), random);
      at.resize(n);
    }
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      // Tables have keys in common.
      const std::vector<int64_t> keys = DistinctIds(sizes[t], 1);
      for (int64_t i = 0; i < sizes[t]; ++i) key_at[at[begin_host_[t] + i]] = keys[i];
    }
    device_views_ = std::make_unique<DeviceArray<KeyIndexView>>(views_host_);
    device_begin_ = std::make_unique<DeviceArray<int64_t>>(begin_host_);
    device_keys_ = std::make_unique<DeviceArray<int64_t>>(key_at);
    device_at_ = std::make_unique<DeviceArray<int32_t>>(at);
    keys.tables = static_cast<int>(sizes.size());
    keys.views = device_views_->data();
    keys.begin = device_begin_->data();
    keys.max_keys = n + 500;
    keys.keys = device_keys_->data();
    keys.which = with_list ? device_at_->data() : nullptr;
  }

 private:
  std::vector<KeyIndex> indexes_;
  std::vector<KeyIndexView> views_host_;
  std::vector<int64_t> begin_host_;
  std::unique_ptr<DeviceArray<KeyIndexView>> device_views_;
  std::unique_ptr<DeviceArray<int64_t>> device_begin_, device_keys_;
  std::unique_ptr<DeviceArray<int32_t>> device_at_;

 public:
  GroupKeys keys;
  std::vector<int64_t> key_at;
  std::vector<int32_t> at;
};

void RunGroup(const std::vector<int64_t>& sizes, bool with_list) {
  AsyncAllocator allocator;
  Group group(&allocator, sizes, with_list);
  std::vector<int64_t> rows(group.key_at.size(), -7);
  // Every third key is not inserted.
  std::vector<int64_t> expected = rows;
  for (std::size_t i = 0; i < group.at.size(); ++i) {
    rows[group.at[i]] = i % 3 == 2 ? -1 : static_cast<int64_t>(i) * 10;
    expected[group.at[i]] = rows[group.at[i]];
  }
  DeviceArray<int64_t> inserted(rows);
  ASSERT_TRUE(InsertKeys(nullptr, group.keys, inserted.data()).ok());
  DeviceArray<int64_t> found(std::vector<int64_t>(rows.size(), -7));
  ASSERT_TRUE(FindKeys(nullptr, group.keys, found.data()).ok());
  EXPECT_EQ(found.Fetch(), expected);
  EXPECT_EQ(inserted.Fetch(), rows);
  DeviceArray<int64_t> erased(std::vector<int64_t>(rows.size(), -7));
  ASSERT_TRUE(EraseKeys(nullptr, group.keys, erased.data()).ok());
  EXPECT_EQ(erased.Fetch(), expected);
  ASSERT_TRUE(FindKeys(nullptr, group.keys, found.data()).ok());
  for (const int32_t at : group.at) expected[at] = kAbsentRow;
  EXPECT_EQ(found.Fetch(), expected);
}

TEST(GroupKeysTest, EveryTableHasItsOwn) {
  const std::vector<std::vector<int64_t>> groups = {
      {}, {0}, {1}, {700}, {300, 500}, {0, 5, 0, 0, 257, 1, 0}, {10, 20, 30, 40, 1, 2, 3, 400, 17, 0, 256}};
  for (const std::vector<int64_t>& sizes : groups) {
    RunGroup(sizes, false);
    RunGroup(sizes, true);
  }
}

// The host only knows an estimate, which may be too low: kernels read the number of keys on the device.
TEST(GroupKeysTest, TheDeviceKnowsTheNumberOfKeys) {
  AsyncAllocator allocator;
  Group group(&allocator, {600, 100}, false);
  group.keys.max_keys = 1;
  std::vector<int64_t> rows(700);
  for (int64_t i = 0; i < 700; ++i) rows[i] = i;
  DeviceArray<int64_t> inserted(rows);
  ASSERT_TRUE(InsertKeys(nullptr, group.keys, inserted.data()).ok());
  DeviceArray<int64_t> found(std::vector<int64_t>(700, -7));
  ASSERT_TRUE(FindKeys(nullptr, group.keys, found.data()).ok());
  EXPECT_EQ(found.Fetch(), rows);
}

}  // namespace
}  // namespace sok
