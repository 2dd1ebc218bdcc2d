#ifndef SOK_CC_BASE_COLUMNS_H_
#define SOK_CC_BASE_COLUMNS_H_

#include <cstdint>
#include <type_traits>

namespace sok {

// Calls body(columns), where `columns` converts to `dim`: for the dims that tables mostly have it is a
// constant to the compiler, which turns a loop over columns into a few vector instructions without a test
// between them. A row of 16 floats is one or two of these; finding out how many takes longer.
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
