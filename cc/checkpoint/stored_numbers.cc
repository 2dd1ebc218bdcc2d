#include "cc/checkpoint/stored_numbers.h"

#include <cmath>
#include <cstring>

namespace sok {
namespace {

template <typename Number>
Number Load(const char* from) {
  Number number;
  std::memcpy(&number, from, sizeof(number));
  return number;
}

float FloatOfBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// IEEE 754's binary16, all of whose numbers are floats.
float FloatOfHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 31) return FloatOfBits(sign | 0x7F800000 | fraction << 13);
  if (exponent != 0) return FloatOfBits(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
  return sign != 0 ? -magnitude : magnitude;
}

// Calls convert(from, to) on each number; it returns whether the number has a value of the type.
template <typename Stored, typename Value, typename Convert>
Status ConvertEach(const std::string& path, const char* from, int64_t columns, int64_t count, char* to,
                   const Convert& convert) {
  for (int64_t i = 0; i < count; ++i) {
    const auto number = Load<Stored>(from + i * columns * static_cast<int64_t>(sizeof(Stored)));
    Value value;
    if (!convert(number, &value)) {
      return InvalidArgument("'", path, "' has the number ", number, ", which a float32 cannot be");
    }
    std::memcpy(to + i * static_cast<int64_t>(sizeof(Value)), &value, sizeof(value));
  }
  return OkStatus();
}

}  // namespace

bool IsReadAs(std::string_view stored, std::string_view dtype) {
  if (stored == dtype) return true;
  if (dtype == "<i8") return stored == "<i4" || stored == "<u4";
  return dtype == "<f4" && (stored == "<f2" || stored == "bfloat16" || stored == "<f8" || stored == "<i8");
}

Status ConvertNumbers(const std::string& path, std::string_view stored, const char* from, int64_t columns,
                      int64_t count, std::string_view dtype, char* to) {
  const auto as_integer = [](auto number, int64_t* value) {
    *value = number;
    return true;
  };
  if (dtype == "<i8") {
    return stored == "<i4" ? ConvertEach<int32_t, int64_t>(path, from, columns, count, to, as_integer)
                           : ConvertEach<uint32_t, int64_t>(path, from, columns, count, to, as_integer);
  }
  if (stored == "<f2") {
    return ConvertEach<uint16_t, float>(path, from, columns, count, to, [](uint16_t half, float* value) {
      *value = FloatOfHalf(half);
      return true;
    });
  }
  if (stored == "bfloat16") {
    return ConvertEach<uint16_t, float>(path, from, columns, count, to, [](uint16_t half, float* value) {
      *value = FloatOfBits(static_cast<uint32_t>(half) << 16);
      return true;
    });
  }
  if (stored == "<f8") {
    return ConvertEach<double, float>(path, from, columns, count, to, [](double number, float* value) {
      *value = static_cast<float>(number);
      return std::isfinite(*value) || !std::isfinite(number);
    });
  }
  if (stored == "<i8") {
    return ConvertEach<int64_t, float>(path, from, columns, count, to, [](int64_t number, float* value) {
      *value = static_cast<float>(number);
      constexpr int64_t kExact = int64_t{1} << 24;
      return number >= -kExact && number <= kExact;
    });
  }
  return ConvertEach<float, float>(path, from, columns, count, to, [](float number, float* value) {
    *value = number;
    return true;
  });
}

}  // namespace sok
