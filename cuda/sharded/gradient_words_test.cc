// Gradients in 16 bits have the same bits as on the CPU.
#include "cuda/sharded/gradient_words.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cuda/device_array.h"

namespace sok {
namespace {

constexpr GradientFormat kFormats[] = {GradientFormat::kFloat16, GradientFormat::kBfloat16};

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// Floats of all exponents, halfway cases and neighbours of bounds.
std::vector<float> Floats() {
  std::vector<float> values = {0.0f, -0.0f, 65504.0f, 65519.9f, 65520.0f, -65536.0f, 5.9604645e-8f, 2.98e-8f};
  for (const float special : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    values.push_back(special);
    values.push_back(-special);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    uint32_t bits = static_cast<uint32_t>(random());
    if (i % 3 == 0) bits &= 0xffffe000u;  // even or halfway in 16 bits
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    values.push_back(value);
  }
  return values;
}

TEST(GradientWordsTest, EncodesAsTheCpu) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  const std::vector<float> values = Floats();
  const auto n = static_cast<int64_t>(values.size());
  DeviceArray<float> device_values(values);
  for (const GradientFormat format : kFormats) {
    std::vector<uint16_t> expected(values.size() + 1, 7);
    EncodeGradients(format, values.data(), n, expected.data() + 1);
    DeviceArray<uint16_t> encoded(std::vector<uint16_t>(values.size() + 1, 7));
    // In two parts, the second one of which begins anywhere.
    const EncodedGradients parts[] = {
        {format, device_values.data(), encoded.data() + 1, 300},
        {format, device_values.data() + 300, encoded.data() + 301, n - 300},
        {format, nullptr, nullptr, 0},
    };
    ASSERT_TRUE(EnqueueEncoding(nullptr, Span<const EncodedGradients>(parts, 3)).ok());
    EXPECT_EQ(encoded.Fetch(), expected);
  }
}

TEST(GradientWordsTest, DecodesAsTheCpu) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  // Every 13th number: all exponents, and both signs.
  std::vector<uint16_t> encoded;
  for (uint32_t bits = 0; bits < 1u << 16; bits += 13) encoded.push_back(static_cast<uint16_t>(bits));
  const auto n = static_cast<int64_t>(encoded.size());
  DeviceArray<uint16_t> device_encoded(encoded);
  for (const GradientFormat format : kFormats) {
    std::vector<float> expected(encoded.size());
    DecodeGradients(format, encoded.data(), n, expected.data());
    DeviceArray<float> values(std::vector<float>(encoded.size(), 7.0f));
    const DecodedGradients parts[] = {
        {format, device_encoded.data(), values.data(), 1000},
        {format, device_encoded.data() + 1000, values.data() + 1000, n - 1000},
    };
    ASSERT_TRUE(EnqueueDecoding(nullptr, Span<const DecodedGradients>(parts, 2)).ok());
    EXPECT_EQ(Bits(values.Fetch()), Bits(expected));
  }
}

}  // namespace
}  // namespace sok
