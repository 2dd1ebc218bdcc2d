// A group's new keys are listed in order, get rows as on the CPU, and are found afterwards.
#include "cuda/index/missing_keys.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cuda/base/async_allocator.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/device_array.h"

namespace sok {
namespace {

struct Case {
  std::vector<int64_t> there;    // of each table, the keys that it has
  std::vector<int64_t> lookup;   // of each table, the keys that are looked up
  std::vector<int64_t> freed;    // of each table, the rows that it has freed
  int64_t more_than_needed = 0;  // how far the host's limit is off
};

// Table t has the rows 0, 1, ... for its first keys.
void RunCase(const Case& c) {
  AsyncAllocator allocator;
  const auto tables = c.there.size();
  std::vector<KeyIndex> indexes;
  std::vector<KeyIndexView> views;
  std::vector<int64_t> begin = {0};
  std::vector<int64_t> keys, freed, expected_rows, expected_begin = {0};
  std::vector<int32_t> expected_which;
  std::vector<int64_t> new_rows;
  for (std::size_t t = 0; t < tables; ++t) {
    const std::vector<int64_t> known = DistinctIds(c.there[t], t + 1);
    indexes.emplace_back(&allocator);
    ASSERT_TRUE(indexes[t].Reserve(nullptr, c.there[t] + c.lookup[t]).ok());
    views.push_back(indexes[t].view());
    std::vector<int64_t> rows(known.size());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    DeviceArray<int64_t> device_keys(known);
    DeviceArray<int64_t> device_rows(rows);
    ASSERT_TRUE(InsertKeys(nullptr, views[t], device_keys.data(), device_rows.data(), c.there[t]).ok());
    device_keys.Fetch();  // waits, as the arrays go
    // Some are there, in an order of their own.
    std::map<int64_t, int64_t> row_of;
    for (int64_t i = 0; i < c.there[t]; ++i) row_of[known[i]] = i;
    std::vector<int64_t> free_rows;
    for (int64_t f = 0; f < c.freed[t]; ++f) free_rows.push_back(1'000'000 * (t + 1) + f);
    freed.insert(freed.end(), free_rows.begin(), free_rows.end());
    int64_t next_row = 500'000;
    for (int64_t i = 0; i < c.lookup[t]; ++i) {
      const bool is_known = i % 3 != 1 && i < c.there[t];
      const int64_t key = is_known ? known[c.there[t] - 1 - i] : static_cast<int64_t>(Mix64(1000 * t + i));
      if (!is_known) {
        expected_which.push_back(static_cast<int32_t>(keys.size()));
        new_rows.push_back(free_rows.empty() ? next_row++ : free_rows.back());
        if (!free_rows.empty()) free_rows.pop_back();
      }
      keys.push_back(key);
      expected_rows.push_back(is_known ? row_of.at(key) : kAbsentRow);
    }
    begin.push_back(static_cast<int64_t>(keys.size()));
    expected_begin.push_back(static_cast<int64_t>(expected_which.size()));
  }
  const auto n = static_cast<int64_t>(keys.size());
  const int64_t max_keys = n + c.more_than_needed;
  keys.resize(max_keys, keys.empty() ? 0 : keys[0]);
  expected_rows.resize(max_keys, -7);
  const auto num_missing = static_cast<int64_t>(expected_which.size());

  DeviceArray<KeyIndexView> device_views(views);
  DeviceArray<int64_t> device_begin(begin), device_keys(keys);
  DeviceArray<int64_t> rows(std::vector<int64_t>(max_keys, -7));
  DeviceArray<int64_t> missing_begin(std::vector<int64_t>(tables + 1, -7));
  DeviceArray<int32_t> missing_which(std::vector<int32_t>(max_keys, -7));
  GroupKeys group;
  group.tables = static_cast<int>(tables);
  group.views = device_views.data();
  group.begin = device_begin.data();
  group.max_keys = max_keys;
  group.keys = device_keys.data();
  const MissingKeys missing = {missing_begin.data(), missing_which.data()};
  ASSERT_TRUE(FindKeysAndMissing(nullptr, &allocator, group, rows.data(), missing).ok());
  EXPECT_EQ(rows.Fetch(), expected_rows);
  EXPECT_EQ(missing_begin.Fetch(), expected_begin);
  std::vector<int32_t> which = missing_which.Fetch();
  EXPECT_EQ(std::vector<int32_t>(which.begin() + num_missing, which.end()),
            std::vector<int32_t>(max_keys - num_missing, -7));
  which.resize(num_missing);
  EXPECT_EQ(which, expected_which);

  // They get rows, and are found then.
  DeviceArray<int64_t> device_freed(freed);
  std::vector<RowSupply> supplies;
  const int64_t* table_freed = device_freed.data();
  for (std::size_t t = 0; t < tables; ++t) {
    supplies.push_back({table_freed, c.freed[t], 500'000});
    table_freed += c.freed[t];
  }
  DeviceArray<RowSupply> device_supplies(supplies);
  ASSERT_TRUE(
      AssignRows(nullptr, group.tables, missing, num_missing, device_supplies.data(), rows.data()).ok());
  for (int64_t m = 0; m < num_missing; ++m) expected_rows[expected_which[m]] = new_rows[m];
  EXPECT_EQ(rows.Fetch(), expected_rows);
  GroupKeys inserted = group;
  inserted.begin = missing.begin;
  inserted.which = missing.which;
  inserted.max_keys = num_missing;
  ASSERT_TRUE(InsertKeys(nullptr, inserted, rows.data()).ok());
  DeviceArray<int64_t> found(std::vector<int64_t>(max_keys, -7));
  ASSERT_TRUE(FindKeysAndMissing(nullptr, &allocator, group, found.data(), missing).ok());
  EXPECT_EQ(found.Fetch(), expected_rows);
  EXPECT_EQ(missing_begin.Fetch(), std::vector<int64_t>(tables + 1, 0));
}

TEST(MissingKeysTest, AreListedInOrderAndGetRows) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  const std::vector<Case> cases = {
      {{}, {}, {}, 0},
      {{0}, {0}, {0}, 5},
      {{0}, {1}, {0}, 0},
      {{5}, {5}, {1}, 1},
      {{0}, {1500}, {20}, 0},
      {{1100}, {1024}, {2000}, 700},
      {{0, 300, 0, 10, 0}, {0, 33, 40, 0, 700}, {3, 1, 0, 0, 700}, 64},
      {{300, 300, 300}, {300, 300, 300}, {10, 0, 500}, 0},
  };
  for (const Case& c : cases) RunCase(c);
}

TEST(MissingKeysTest, TooManyKeysAndMissingMemoryAreErrors) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  LimitedAllocator scratch;
  scratch.limit = 100;
  GroupKeys keys;
  keys.max_keys = int64_t{1} << 31;
  EXPECT_EQ(FindKeysAndMissing(nullptr, &scratch, keys, nullptr, {}).code(), StatusCode::kInvalidArgument);
  keys.max_keys = 10'000;
  EXPECT_EQ(FindKeysAndMissing(nullptr, &scratch, keys, nullptr, {}).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(scratch.in_use, 0);
}

}  // namespace
}  // namespace sok
