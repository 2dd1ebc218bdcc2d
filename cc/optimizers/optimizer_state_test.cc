#include "cc/optimizers/optimizer_state.h"

#include <gtest/gtest.h>

#include <string>

#include "cc/base/hash.h"

namespace sok {
namespace {

TEST(OptimizerState, RoundTrip) {
  for (const char* name : {"", "adam", "keras_rmsprop_centered"}) {
    for (int64_t steps : {int64_t{0}, int64_t{300}, int64_t{1} << 40}) {
      const std::string bytes = EncodeOptimizerState({name, steps});
      EXPECT_LT(bytes.size(), 64u);
      const auto state = DecodeOptimizerState(bytes);
      ASSERT_TRUE(state.ok()) << state.status().message();
      EXPECT_EQ(state.value().name, name);
      EXPECT_EQ(state.value().steps, steps);
    }
  }
}

TEST(OptimizerState, BytesAreTheDocumentedOnes) {
  const std::string bytes = EncodeOptimizerState({"sgd", 258});
  EXPECT_EQ(bytes.substr(0, 23), std::string("SOKO\1\0\0\0\2\1\0\0\0\0\0\0\3\0\0\0sgd", 23));
  EXPECT_EQ(bytes.size(), 31u);
}

TEST(OptimizerState, EveryDamagedByteIsDataLoss) {
  const std::string good = EncodeOptimizerState({"adam", 77});
  for (size_t i = 0; i < good.size(); ++i) {
    for (char flip : {'\1', '\x80', '\xff'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      const auto state = DecodeOptimizerState(bad);
      ASSERT_FALSE(state.ok()) << i;
      EXPECT_EQ(state.status().code(), StatusCode::kDataLoss);
    }
  }
}

TEST(OptimizerState, EveryOtherLengthIsDataLoss) {
  const std::string good = EncodeOptimizerState({"adam", 77});
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_EQ(DecodeOptimizerState(good.substr(0, n)).status().code(), StatusCode::kDataLoss) << n;
  }
  EXPECT_EQ(DecodeOptimizerState(good + '\0').status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeOptimizerState(std::string(1 << 16, '\xff')).status().code(), StatusCode::kDataLoss);
}

// The checksum is right, but the content is not.
TEST(OptimizerState, WrongContentWithARightChecksumIsDataLoss) {
  const auto with = [](size_t at, char value) {
    std::string bytes = EncodeOptimizerState({"adam", 77});
    bytes[at] = value;
    bytes.resize(bytes.size() - 8);
    uint64_t checksum = Fingerprint64(bytes.data(), bytes.size());
    for (int i = 0; i < 8; ++i, checksum >>= 8) bytes.push_back(static_cast<char>(checksum & 0xff));
    return bytes;
  };
  ASSERT_TRUE(DecodeOptimizerState(with(8, 78)).ok());
  EXPECT_EQ(DecodeOptimizerState(with(8, 78)).value().steps, 78);
  for (const std::string& bytes :
       {with(0, 'X'), with(4, 2), with(15, '\x80'), with(16, 5), with(19, '\xff')}) {
    EXPECT_EQ(DecodeOptimizerState(bytes).status().code(), StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace sok
