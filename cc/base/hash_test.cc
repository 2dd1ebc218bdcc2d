#include "cc/base/hash.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace sok {
namespace {

// Rows, shards and seeds depend on these bits, also in stored checkpoints: they must never change.
TEST(HashTest, Mix64KeepsItsBits) {
  // The first outputs of SplitMix64 with seed 0, as its authors' program prints them.
  EXPECT_EQ(Mix64(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(Mix64(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(Mix64(2 * 0x9e3779b97f4a7c15u), 0x06c45d188009454fu);
}

TEST(HashTest, EveryInputBitMovesHalfOfTheOutputBits) {
  for (int bit = 0; bit < 64; ++bit) {
    int changed = 0;
    for (uint64_t x = 0; x < 256; ++x) {
      changed += __builtin_popcountll(Mix64(x) ^ Mix64(x ^ (uint64_t{1} << bit)));
    }
    EXPECT_NEAR(changed / 256.0, 32.0, 2.0) << "bit " << bit;
  }
}

TEST(HashTest, FingerprintsAreFnv1a) {
  EXPECT_EQ(Fingerprint64("", 0), 0xcbf29ce484222325u);
  EXPECT_EQ(Fingerprint64("a", 1), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Fingerprint64("foobar", 6), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace sok
