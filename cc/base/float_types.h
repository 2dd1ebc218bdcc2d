// Floats in 16 bits: for rows, slots and gradients that take half the bytes. The same bits on host and
// device.
#ifndef SOK_CC_BASE_FLOAT_TYPES_H_
#define SOK_CC_BASE_FLOAT_TYPES_H_

#include <string.h>

#include <cstdint>

#include "cc/base/host_device.h"

namespace sok {

// float16 is IEEE binary16, bfloat16 the upper half of a float. Messages carry these numbers.
enum class FloatType : int64_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2 };

constexpr int64_t BytesOf(FloatType type) { return type == FloatType::kFloat32 ? 4 : 2; }

// "float32", "float16" or "bfloat16".
constexpr const char* NameOf(FloatType type) {
  return type == FloatType::kFloat32 ? "float32" : type == FloatType::kFloat16 ? "float16" : "bfloat16";
}

namespace float_types_internal {

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

// `one` if `chosen`, else `other`. Loops over it vectorize, where compilers make branches of ?: with floats.
SOK_HOST_DEVICE uint32_t Select(bool chosen, uint32_t one, uint32_t other) {
  const uint32_t mask = 0u - static_cast<uint32_t>(chosen);
  return (one & mask) | (other & ~mask);
}

}  // namespace float_types_internal

// IEEE binary16: rounds to nearest, ties to even.
SOK_HOST_DEVICE uint16_t ToFloat16(float value) {
  using namespace float_types_internal;
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
  const uint32_t nan_or_infinity = Select(magnitude > kInfinity, 0x7e00, 0x7c00);
  const uint32_t finite = Select(magnitude < kSmallestNormal, denormal, normal);
  return static_cast<uint16_t>(sign | Select(magnitude >= kTooLarge, nan_or_infinity, finite));
}

SOK_HOST_DEVICE float FromFloat16(uint16_t half) {
  using namespace float_types_internal;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  const uint32_t denormal = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = Select(magnitude < 0x0400, denormal, normal);
  return FloatOf(sign | Select(magnitude >= 0x7c00, kInfinity | (magnitude << 13), finite));
}

// The upper half of a float, rounded alike.
SOK_HOST_DEVICE uint16_t ToBfloat16(float value) {
  using namespace float_types_internal;
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > kInfinity ? nan : rounded);
}

SOK_HOST_DEVICE float FromBfloat16(uint16_t value) {
  return float_types_internal::FloatOf(static_cast<uint32_t>(value) << 16);
}

// --- Stochastic rounding: to one of the two nearest numbers, to each with the probability that makes the
// result exact on average. `noise` has 16 random bits. A finite number stays finite; otherwise as above.

SOK_HOST_DEVICE uint16_t ToFloat16(float value, uint32_t noise) {
  using namespace float_types_internal;
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  constexpr uint32_t kTooLarge = (127u + 16u) << 23;        // 65536
  constexpr uint32_t kSmallestNormal = (127u - 14u) << 23;  // 2^-14
  const uint32_t carried = (magnitude - ((127 - 15) << 23) + (noise & 0x1fff)) >> 13;
  const uint32_t normal = Select(carried > 0x7bff, 0x7bff, carried);
  // Denormal results are multiples of 2^-24, fewer than 2^10 of them: with 13 bits of noise a sum fits a
  // float.
  const float multiple = FloatOf(Select(magnitude < kSmallestNormal, magnitude, 0)) * 0x1p24f;
  const float rest = static_cast<float>(static_cast<int32_t>(noise & 0x1fff)) * 0x1p-13f;
  const uint32_t denormal = static_cast<uint32_t>(static_cast<int32_t>(multiple + rest));
  const uint32_t finite = sign | Select(magnitude < kSmallestNormal, denormal, normal);
  return static_cast<uint16_t>(Select(magnitude >= kTooLarge, ToFloat16(value), finite));
}

SOK_HOST_DEVICE uint16_t ToBfloat16(float value, uint32_t noise) {
  using namespace float_types_internal;
  const uint32_t bits = BitsOf(value);
  // Compared as signed numbers, for which all vectors have an instruction.
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffff);
  constexpr int32_t kLargest = 0x7f7f0000;
  const uint32_t carried = bits + Select(magnitude < kLargest, noise & 0xffff, 0);
  const uint32_t quiet = Select(magnitude > static_cast<int32_t>(kInfinity), 0x00400000, 0);
  return static_cast<uint16_t>((carried | quiet) >> 16);
}

// 16 random bits for each of the elements 2 * pair, in the lower half, and 2 * pair + 1 of what `base` stands
// for: the finalizer of MurmurHash3 (Appleby), which takes few operations in vectors.
SOK_HOST_DEVICE uint32_t RoundingNoiseOfPair(uint32_t base, uint32_t pair) {
  uint32_t x = base + pair * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// The bits of element `index`.
SOK_HOST_DEVICE uint32_t RoundingNoise(uint32_t base, uint32_t index) {
  return (RoundingNoiseOfPair(base, index / 2) >> (index % 2 * 16)) & 0xffff;
}

}  // namespace sok

#endif  // SOK_CC_BASE_FLOAT_TYPES_H_
