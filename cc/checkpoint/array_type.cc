#include "cc/checkpoint/array_type.h"

#include <cmath>
#include <cstring>

#include "cc/base/status.h"
#include "cc/table/record_layout.h"

namespace sok {
namespace {

struct Dtype {
  const char* name;
  int bytes;
  const char* words;
};
constexpr Dtype kDtypes[] = {{"<f4", 4, "float32"},      {"<f8", 8, "float64"}, {"<i8", 8, "int64"},
                             {"<i4", 4, "int32"},        {"|u1", 1, "uint8"},   {"<u2", 2, "uint16"},
                             {"<u4", 4, "uint32"},       {"<u8", 8, "uint64"},  {"<f2", 2, "float16"},
                             {"bfloat16", 2, "bfloat16"}};

}  // namespace

std::string NameOfDtype(std::string_view dtype) {
  for (const Dtype& known : kDtypes) {
    if (dtype == known.name) return known.words;
  }
  return std::string(dtype);
}

const char* DtypeOf(FloatType type) {
  return type == FloatType::kFloat32 ? "<f4" : type == FloatType::kFloat16 ? "<f2" : "bfloat16";
}

int ItemBytes(std::string_view dtype) {
  for (const Dtype& known : kDtypes) {
    if (dtype == known.name) return known.bytes;
  }
  return 0;
}

int64_t DataBytes(const ArrayType& type) {
  int64_t bytes = ItemBytes(type.dtype);
  if (bytes == 0 || type.shape.empty() || type.shape.size() > 2) return -1;
  for (int64_t size : type.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return -1;
  }
  return bytes;
}

std::string Describe(const ArrayType& type) {
  std::string text = NameOfDtype(type.dtype) + " [";
  for (size_t i = 0; i < type.shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", type.shape[i]);
  return text + "]";
}

namespace {

template <typename Number>
Number Load(const char* from) {
  Number number;
  std::memcpy(&number, from, sizeof(number));
  return number;
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
  for (const FloatType type : {FloatType::kFloat16, FloatType::kBfloat16}) {
    if (stored != DtypeOf(type)) continue;
    if (columns == 1) {
      RecordLayout(count, RecordFormat{type}).ReadWeights(from, reinterpret_cast<float*>(to));
      return OkStatus();
    }
    return ConvertEach<uint16_t, float>(path, from, columns, count, to, [type](uint16_t half, float* value) {
      *value = type == FloatType::kFloat16 ? FromFloat16(half) : FromBfloat16(half);
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
