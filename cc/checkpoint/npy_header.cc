#include "cc/checkpoint/npy_header.h"

namespace sok {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);

struct Dtype {
  const char* name;
  int bytes;
  const char* words;
};
constexpr Dtype kDtypes[] = {{"<f4", 4, "float32"}, {"<i8", 8, "int64"},  {"|u1", 1, "uint8"},
                             {"<u2", 2, "uint16"},  {"<u4", 4, "uint32"}, {"<u8", 8, "uint64"}};

std::string ShapeText(const std::vector<int64_t>& shape) {
  if (shape.size() == 1) return StrCat("(", shape[0], ",)");
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + ")";
}

}  // namespace

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
  std::string text = type.dtype;
  for (const Dtype& known : kDtypes) {
    if (type.dtype == known.name) text = known.words;
  }
  text += " [";
  for (size_t i = 0; i < type.shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", type.shape[i]);
  return text + "]";
}

std::string EncodeNpyHeader(const ArrayType& type) {
  std::string dict =
      StrCat("{'descr': '", type.dtype, "', 'fortran_order': False, 'shape': ", ShapeText(type.shape), ", }");
  constexpr size_t kBefore = 10;  // magic, version and the dictionary's length
  const size_t length = (kBefore + dict.size() + 1 + 63) / 64 * 64 - kBefore;
  dict.resize(length - 1, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += static_cast<char>(length & 0xff);
  header += static_cast<char>(length >> 8);
  return header + dict;
}

}  // namespace sok
