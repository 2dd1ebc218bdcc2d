#ifndef SOK_CC_CHECKPOINT_ARRAY_TYPE_H_
#define SOK_CC_CHECKPOINT_ARRAY_TYPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/float_types.h"
#include "cc/base/status.h"

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

// Numbers in files that are of another type than in memory: floats in 16 bits, and those of other systems.

// Whether numbers of the type `stored` can be read as `dtype`: integers of four bytes as int64; floats of two
// and eight bytes, and int64, as float32.
bool IsReadAs(std::string_view stored, std::string_view dtype);

// Writes `count` numbers as `dtype` to `to`: the first one of each `columns` at `from`. Floats of eight bytes
// are rounded to the nearest float. InvalidArgument, which names `path` and the number, for a finite one that
// is beyond the range of float32, and an integer that is no float. Both pointers are aligned as their
// numbers.
Status ConvertNumbers(const std::string& path, std::string_view stored, const char* from, int64_t columns,
                      int64_t count, std::string_view dtype, char* to);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_ARRAY_TYPE_H_
