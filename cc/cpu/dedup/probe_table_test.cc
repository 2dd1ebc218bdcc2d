#include "cc/cpu/dedup/probe_table.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "cc/base/testing/test_ids.h"

namespace sok {
namespace {

TEST(ProbeTableTest, StoresThenFinds) {
  ProbeTable table;
  ASSERT_TRUE(table.Start(100).ok());
  EXPECT_GE(table.room(), 100);
  int32_t position = 0;
  for (const int64_t id : HostileIds()) {
    EXPECT_EQ(table.FindOrStore(id, id, 10 + position), 10 + position);
    ++position;
  }
  position = 0;
  for (const int64_t id : HostileIds()) EXPECT_EQ(table.FindOrStore(id, id, 99), 10 + position++);
}

TEST(ProbeTableTest, IdsWithEqualHashesAreDistinguished) {
  ProbeTable table;
  ASSERT_TRUE(table.Start(500).ok());
  // The last slot, so that the run wraps around.
  const uint64_t hash = ~uint64_t{0};
  for (int64_t id = 0; id < 500; ++id) ASSERT_EQ(table.FindOrStore(id, hash, id), id);
  for (int64_t id = 0; id < 500; ++id) ASSERT_EQ(table.FindOrStore(id, hash, -1), id);
}

// Every sequence of six small and large uses: whichever of them restarts the numbers, a later use must not
// meet what an earlier one stored, in the slots that both have or beyond them.
TEST(ProbeTableTest, StartEmptiesTheTableEvenWhenUseNumbersRestart) {
  for (const uint32_t max_uses : {1, 2, 3, 4}) {
    for (int sizes = 0; sizes < 64; ++sizes) {
      ProbeTable table(max_uses);
      for (int32_t use = 0; use < 6; ++use) {
        ASSERT_TRUE(table.Start((sizes >> use) % 2 == 0 ? 100 : 2000).ok());
        for (int64_t id = 0; id < 100; ++id) {
          ASSERT_EQ(table.FindOrStore(id, id * 31, 1000 * use + id), 1000 * use + id)
              << max_uses << " uses, sizes " << sizes << ", use " << use;
        }
      }
    }
  }
}

TEST(ProbeTableTest, TooLittleMemoryIsAnError) {
  ProbeTable table;
  EXPECT_EQ(table.Start(int64_t{1} << 45).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(table.Start(10).ok());
  EXPECT_EQ(table.FindOrStore(3, 3, 0), 0);
}

}  // namespace
}  // namespace sok
