#include "cc/sharded/gradient_format.h"

#include <cstring>

#include "cc/base/vectorize.h"

namespace sok {
namespace {

inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

constexpr uint32_t kInfinity = 0x7f800000;

inline uint16_t ToFloat16(float value) {
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

inline float FromFloat16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  const uint32_t denormal = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = magnitude < 0x0400 ? denormal : normal;
  return FloatOf(sign | (magnitude >= 0x7c00 ? kInfinity | (magnitude << 13) : finite));
}

inline uint16_t ToBfloat16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > kInfinity ? nan : rounded);
}

inline float FromBfloat16(uint16_t value) { return FloatOf(static_cast<uint32_t>(value) << 16); }

template <uint16_t (*Convert)(float)>
void EncodeAll(const float* values, int64_t count, uint16_t* out) {
  RunVectorized([&] {
    for (int64_t i = 0; i < count; ++i) out[i] = Convert(values[i]);
  });
}

template <float (*Convert)(uint16_t)>
void DecodeAll(const uint16_t* values, int64_t count, float* out) {
  RunVectorized([&] {
    for (int64_t i = 0; i < count; ++i) out[i] = Convert(values[i]);
  });
}

}  // namespace

void EncodeGradients(GradientFormat format, const float* values, int64_t count, uint16_t* out) {
  format == GradientFormat::kFloat16 ? EncodeAll<ToFloat16>(values, count, out)
                                     : EncodeAll<ToBfloat16>(values, count, out);
}

void DecodeGradients(GradientFormat format, const uint16_t* values, int64_t count, float* out) {
  format == GradientFormat::kFloat16 ? DecodeAll<FromFloat16>(values, count, out)
                                     : DecodeAll<FromBfloat16>(values, count, out);
}

}  // namespace sok
