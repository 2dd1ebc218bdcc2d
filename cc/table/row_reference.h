#ifndef SOK_CC_TABLE_ROW_REFERENCE_H_
#define SOK_CC_TABLE_ROW_REFERENCE_H_

#include <cstdint>

namespace sok {

// A lookup's reference to a row for its backward pass: the row number in the low 40 bits, and above them how
// often the row has been freed (modulo 2^23). If rows are never freed, a reference is the row number.
constexpr int kRowNumberBits = 40;
constexpr int64_t kMaxRows = int64_t{1} << kRowNumberBits;

constexpr uint32_t NextGeneration(uint32_t generation) { return (generation + 1) & ((1u << 23) - 1); }
constexpr int64_t MakeRowReference(int64_t row, uint32_t generation) {
  return static_cast<int64_t>(generation) << kRowNumberBits | row;
}
// The reference must not be negative.
constexpr int64_t RowOf(int64_t reference) { return reference & (kMaxRows - 1); }

}  // namespace sok

#endif  // SOK_CC_TABLE_ROW_REFERENCE_H_
