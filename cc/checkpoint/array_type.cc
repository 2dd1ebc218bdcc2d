#include "cc/checkpoint/array_type.h"

#include "cc/base/status.h"

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

}  // namespace sok
