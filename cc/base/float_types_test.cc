#include "cc/base/float_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cc/base/testing/vector_levels.h"
#include "cc/base/vectorize.h"

namespace sok {
namespace {

constexpr FloatType kTypes[] = {FloatType::kFloat16, FloatType::kBfloat16};

float Decode(FloatType type, uint16_t bits) {
  return type == FloatType::kFloat16 ? FromFloat16(bits) : FromBfloat16(bits);
}
uint16_t Encode(FloatType type, float value, uint32_t noise) {
  return type == FloatType::kFloat16 ? ToFloat16(value, noise) : ToBfloat16(value, noise);
}

// The share of all noise for which the result is the number farther from zero, and whether each result is one
// of the two numbers of `type` around the value.
double ShareRoundedUp(FloatType type, float value, float* toward_zero, float* away) {
  *toward_zero = *away = std::numeric_limits<float>::quiet_NaN();
  int64_t up = 0;
  for (uint32_t noise = 0; noise < 65536; ++noise) {
    const float result = Decode(type, Encode(type, value, noise));
    const bool is_up = std::fabs(result) > std::fabs(value);
    float& seen = is_up ? *away : *toward_zero;
    EXPECT_TRUE(std::isnan(seen) || result == seen) << value << " rounded to three numbers";
    seen = result;
    up += is_up ? 1 : 0;
  }
  return static_cast<double>(up) / 65536;
}

TEST(StochasticRoundingTest, RoundsUpWithTheProbabilityOfTheRest) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-27.0, 15.9);
  for (const FloatType type : kTypes) {
    for (int i = 0; i < 200; ++i) {
      const double sign = i % 2 == 0 ? 1.0 : -1.0;
      const auto value = static_cast<float>(sign * std::exp2(exponent(random)));
      float below;
      float above;
      const double share = ShareRoundedUp(type, value, &below, &above);
      if (share == 0.0 || share == 1.0) {
        // Too close to a number of the type for 16 bits of noise.
        const float only = share == 0.0 ? below : above;
        const double step =
            type == FloatType::kFloat16 && std::fabs(value) < 0x1p-14 ? 0x1p-24 : std::fabs(value) / 128;
        EXPECT_LT(std::fabs(only - value), step / 4096) << value;
        continue;
      }
      const double expected = (static_cast<double>(value) - below) / (static_cast<double>(above) - below);
      EXPECT_NEAR(share, expected, 2e-4) << NameOf(type) << " of " << value;
    }
  }
}

TEST(StochasticRoundingTest, NumbersOfTheTypeStay) {
  for (const FloatType type : kTypes) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const float value = Decode(type, static_cast<uint16_t>(bits));
      for (const uint32_t noise : {0u, 1u, 0x1fffu, 0x8000u, 0xffffu}) {
        const float result = Decode(type, Encode(type, value, noise));
        ASSERT_TRUE(result == value || (std::isnan(result) && std::isnan(value))) << bits << ", " << noise;
        ASSERT_EQ(std::signbit(result), std::signbit(value)) << bits;
      }
    }
  }
}

TEST(StochasticRoundingTest, FiniteNumbersOfTheRangeStayFinite) {
  const float largest = std::numeric_limits<float>::max();
  for (const uint32_t noise : {0u, 0x1fffu, 0xffffu}) {
    for (const float sign : {1.0f, -1.0f}) {
      EXPECT_TRUE(std::isfinite(FromBfloat16(ToBfloat16(sign * largest, noise))));
      EXPECT_EQ(FromFloat16(ToFloat16(sign * 65535.0f, noise)), sign * 65504.0f);
      EXPECT_EQ(FromFloat16(ToFloat16(sign * 65536.0f, noise)), sign * INFINITY);
    }
  }
}

TEST(RoundingNoiseTest, IsUniformAndTheSameAtEachVectorLevel) {
  std::vector<uint32_t> plain(4096);
  for (uint32_t i = 0; i < plain.size(); ++i) plain[i] = RoundingNoise(77, i);
  for (const VectorLevel level : VectorLevels()) {
    const WithVectorLevel with_level(level);
    std::vector<uint32_t> noise(plain.size());
    RunVectorized([&] {
      for (uint32_t i = 0; i < noise.size(); ++i) noise[i] = RoundingNoise(77, i);
    });
    EXPECT_EQ(noise, plain);
  }
  // Each of 16 bits is set for about half of the columns, and of the bases.
  for (int bit = 0; bit < 16; ++bit) {
    int of_columns = 0;
    int of_bases = 0;
    for (uint32_t i = 0; i < 4096; ++i) {
      of_columns += RoundingNoise(123, i) >> bit & 1;
      of_bases += RoundingNoise(i, 5) >> bit & 1;
    }
    EXPECT_NEAR(of_columns, 2048, 5 * 32) << bit;
    EXPECT_NEAR(of_bases, 2048, 5 * 32) << bit;
  }
}

TEST(RoundingNoiseTest, ColumnsAndBasesAreUncorrelated) {
  constexpr uint32_t kBases = 256;
  constexpr uint32_t kColumns = 192;
  const auto centered = [](uint32_t base, uint32_t column) {
    return (RoundingNoise(base, column) - 32767.5) / 65536;
  };
  double sum = 0.0;
  for (uint32_t base = 0; base < kBases; ++base) {
    for (uint32_t c = 0; c < kColumns; ++c) sum += centered(base, c);
  }
  // Five standard deviations of a mean of uniform numbers, and of a mean of products of two.
  const double root = std::sqrt(kBases * kColumns);
  EXPECT_NEAR(sum / (kBases * kColumns), 0.0, 5 / std::sqrt(12.0) / root);
  // With each other column up to the slot's of the same number; and with those of other bases.
  for (uint32_t by = 1; by <= 128; ++by) {
    double columns = 0.0;
    double bases = 0.0;
    for (uint32_t base = 0; base < kBases; ++base) {
      for (uint32_t c = 0; c < kColumns; ++c) {
        const double one = centered(base, c);
        columns += one * centered(base, c + by);
        bases += one * centered(base + by, c);
      }
    }
    EXPECT_NEAR(columns / (kBases * kColumns), 0.0, 5.0 / 12 / root) << by;
    EXPECT_NEAR(bases / (kBases * kColumns), 0.0, 5.0 / 12 / root) << by;
  }
}

}  // namespace
}  // namespace sok
