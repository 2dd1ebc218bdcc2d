#ifndef SOK_CC_BASE_COLUMNS_H_
#define SOK_CC_BASE_COLUMNS_H_

#include <cstdint>
#include <type_traits>

namespace sok {

// Calls body(columns), where `columns` converts to `dim`. For common dims `columns` is a compile-time
// constant, so that the compiler unrolls a loop over columns into a few vector instructions without branches.
// A row of 16 floats takes one or two of them; a loop with a run-time length costs more than the arithmetic.
template <typename Body>
void WithColumns(int64_t dim, const Body& body) {
  switch (dim) {
    case 16:
      return body(std::integral_constant<int64_t, 16>());
    case 32:
      return body(std::integral_constant<int64_t, 32>());
    case 64:
      return body(std::integral_constant<int64_t, 64>());
    case 128:
      return body(std::integral_constant<int64_t, 128>());
    default:
      return body(dim);
  }
}

}  // namespace sok

#endif  // SOK_CC_BASE_COLUMNS_H_
