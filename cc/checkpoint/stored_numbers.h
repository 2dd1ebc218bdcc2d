// Numbers in files that are of another type than in memory: floats in 16 bits, and those of other systems.
#ifndef SOK_CC_CHECKPOINT_STORED_NUMBERS_H_
#define SOK_CC_CHECKPOINT_STORED_NUMBERS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "cc/base/status.h"

namespace sok {

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

#endif  // SOK_CC_CHECKPOINT_STORED_NUMBERS_H_
