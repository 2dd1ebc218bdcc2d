#ifndef SOK_CC_CHECKPOINT_ARRAY_TYPE_H_
#define SOK_CC_CHECKPOINT_ARRAY_TYPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/float_types.h"

namespace sok {

// The type of an array: little-endian numbers in C order.
struct ArrayType {
  std::string dtype;           // in NumPy's notation: "<i8", "<f4", "<u4", "|u1" ...
  std::vector<int64_t> shape;  // one or two sizes

  bool operator==(const ArrayType& other) const { return dtype == other.dtype && shape == other.shape; }
  bool operator!=(const ArrayType& other) const { return !(*this == other); }
};

// The word for a dtype, such as "float32"; the dtype itself if checkpoints do not use it.
std::string NameOfDtype(std::string_view dtype);
// The dtype of floats of this type.
const char* DtypeOf(FloatType type);
// Bytes of one number; 0 for a dtype that checkpoints do not use.
int ItemBytes(std::string_view dtype);
// Bytes of all numbers; -1 if the dtype is unknown, the shape is invalid, or the product exceeds int64.
int64_t DataBytes(const ArrayType& type);
// "float32 [3, 16]", for messages.
std::string Describe(const ArrayType& type);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_ARRAY_TYPE_H_
