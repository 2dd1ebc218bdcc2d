#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cc/messages/message.h"

namespace sok {
namespace {

uint16_t Encode(GradientFormat format, float value) {
  uint16_t out;
  EncodeGradients(format, &value, 1, &out);
  return out;
}

float Decode(GradientFormat format, uint16_t value) {
  float out;
  DecodeGradients(format, &value, 1, &out);
  return out;
}

float WithBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The value of a floating-point number with these numbers of bits, computed from the definition.
double Reference(uint16_t value, int mantissa_bits, int exponent_bits) {
  const int mantissa = value & ((1 << mantissa_bits) - 1);
  const int exponent = (value >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = value >> 15 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * INFINITY : NAN;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias)
                       : sign * std::ldexp(1.0 + fraction, exponent - bias);
}

double ReferenceOf(GradientFormat format, uint16_t value) {
  return format == GradientFormat::kFloat16 ? Reference(value, 10, 5) : Reference(value, 7, 8);
}

class GradientFormatTest : public testing::TestWithParam<GradientFormat> {};

TEST_P(GradientFormatTest, EveryValueDecodesExactlyAndEncodesBack) {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    const float decoded = Decode(GetParam(), value);
    const double expected = ReferenceOf(GetParam(), value);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(decoded)) << bits;
      EXPECT_TRUE(std::isnan(Decode(GetParam(), Encode(GetParam(), decoded)))) << bits;
      continue;
    }
    ASSERT_EQ(decoded, expected) << bits;
    ASSERT_EQ(Encode(GetParam(), decoded), value) << bits;
  }
}

TEST_P(GradientFormatTest, RoundsToNearestWithTiesToEven) {
  std::mt19937 random(7);
  std::vector<float> values;
  for (int i = 0; i < 200000; ++i) values.push_back(WithBits(random()));
  // Values halfway between neighbours, and just above and below.
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const double low = ReferenceOf(GetParam(), static_cast<uint16_t>(bits));
    const double high = ReferenceOf(GetParam(), static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    values.insert(values.end(), {middle, std::nextafterf(middle, INFINITY), std::nextafterf(middle, 0.0f)});
  }
  for (const float value : values) {
    if (std::isnan(value)) continue;
    const uint16_t encoded = Encode(GetParam(), value);
    const uint16_t magnitude = encoded & 0x7fff;
    if (std::isinf(ReferenceOf(GetParam(), encoded))) {
      const double largest = ReferenceOf(GetParam(), static_cast<uint16_t>(magnitude - 1));
      const double before = ReferenceOf(GetParam(), static_cast<uint16_t>(magnitude - 2));
      ASSERT_GE(std::abs(static_cast<double>(value)), largest + (largest - before) / 2);
      continue;
    }
    const double error = std::abs(static_cast<double>(value) - ReferenceOf(GetParam(), encoded));
    for (const int step : {-1, 1}) {
      const int neighbour = magnitude + step;
      if (neighbour < 0) continue;
      const auto other = static_cast<uint16_t>((encoded & 0x8000) | neighbour);
      const double other_error = std::abs(static_cast<double>(value) - ReferenceOf(GetParam(), other));
      ASSERT_LE(error, other_error) << value;
      if (error == other_error) {
        ASSERT_EQ(magnitude % 2, 0) << value;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, GradientFormatTest,
                         testing::Values(GradientFormat::kFloat16, GradientFormat::kBfloat16),
                         [](const auto& info) {
                           return info.param == GradientFormat::kFloat16 ? "Float16" : "Bfloat16";
                         });

}  // namespace
}  // namespace sok
