#ifndef SOK_CC_TABLE_ROW_REFERENCE_H_
#define SOK_CC_TABLE_ROW_REFERENCE_H_

#include <cstdint>

namespace sok {

// What a lookup tells its backward pass about a row: the row's number in the low 40 bits, above them how
// often the row was freed before (modulo 2^23). Where rows are never freed a reference is the row's number.
constexpr int kRowNumberBits = 40;
constexpr int64_t kMaxRows = int64_t{1} << kRowNumberBits;

constexpr uint32_t NextGeneration(uint32_t generation) { return (generation + 1) & ((1u << 23) - 1); }
constexpr int64_t MakeRowReference(int64_t row, uint32_t generation) {
  return static_cast<int64_t>(generation) << kRowNumberBits | row;
}
// Of a reference that is not negative.
constexpr int64_t RowOf(int64_t reference) { return reference & (kMaxRows - 1); }

}  // namespace sok

#endif  // SOK_CC_TABLE_ROW_REFERENCE_H_
