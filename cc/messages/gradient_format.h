// The formats of gradients in exchanges between ranks.
#ifndef SOK_CC_MESSAGES_GRADIENT_FORMAT_H_
#define SOK_CC_MESSAGES_GRADIENT_FORMAT_H_

#include <string.h>

#include <cstdint>

#include "cc/base/host_device.h"

namespace sok {

// The arithmetic of gradients in 16 bits, on host and device.

namespace gradient_bits_internal {

constexpr uint32_t kInfinity = 0x7f800000;

SOK_HOST_DEVICE uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

SOK_HOST_DEVICE float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace gradient_bits_internal

// IEEE binary16: rounds to nearest, ties to even.
SOK_HOST_DEVICE uint16_t ToFloat16(float value) {
  using namespace gradient_bits_internal;
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  // Normal results: the bias of the exponent changes from 127 to 15, and the mantissa is rounded by 13 bits.
  // A carry out of the mantissa increments the exponent, at most to that of infinity.
  const uint32_t odd = (magnitude >> 13) & 1;
  const uint32_t normal = (magnitude - ((127 - 15) << 23) + 0xfff + odd) >> 13;
  // Denormal results are multiples of 2^-24. This is the distance between floats in [0.5, 1), so adding 0.5
  // rounds to such a multiple.
  const uint32_t denormal = BitsOf(FloatOf(magnitude) + 0.5f) - BitsOf(0.5f);
  constexpr uint32_t kTooLarge = (127u + 16u) << 23;        // 65536
  constexpr uint32_t kSmallestNormal = (127u - 14u) << 23;  // 2^-14
  const uint32_t nan_or_infinity = magnitude > kInfinity ? 0x7e00 : 0x7c00;
  const uint32_t finite = magnitude < kSmallestNormal ? denormal : normal;
  return static_cast<uint16_t>(sign | (magnitude >= kTooLarge ? nan_or_infinity : finite));
}

SOK_HOST_DEVICE float FromFloat16(uint16_t half) {
  using namespace gradient_bits_internal;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  const uint32_t denormal = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = magnitude < 0x0400 ? denormal : normal;
  return FloatOf(sign | (magnitude >= 0x7c00 ? kInfinity | (magnitude << 13) : finite));
}

// The upper half of a float, rounded alike.
SOK_HOST_DEVICE uint16_t ToBfloat16(float value) {
  using namespace gradient_bits_internal;
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > kInfinity ? nan : rounded);
}

SOK_HOST_DEVICE float FromBfloat16(uint16_t value) {
  return gradient_bits_internal::FloatOf(static_cast<uint32_t>(value) << 16);
}

enum class GradientFormat : int64_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2 };

constexpr bool IsGradientFormat(int64_t value) { return value >= 0 && value <= 2; }
constexpr int64_t BytesOf(GradientFormat format) { return format == GradientFormat::kFloat32 ? 4 : 2; }

// Rounds to nearest, ties to even: IEEE binary16 (from 65520 on to infinity), or the upper half of a float.
// NaN stays NaN. `format` is one of the 16-bit formats.
void EncodeGradients(GradientFormat format, const float* values, int64_t count, uint16_t* out);

// Exact. Decodes float16 denormals even on threads that flush denormal floats to zero.
void DecodeGradients(GradientFormat format, const uint16_t* values, int64_t count, float* out);

}  // namespace sok

#endif  // SOK_CC_MESSAGES_GRADIENT_FORMAT_H_
