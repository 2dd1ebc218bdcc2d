#ifndef SOK_CC_TABLE_ROW_REFERENCE_H_
#define SOK_CC_TABLE_ROW_REFERENCE_H_

#include <cstdint>

namespace sok {

// A lookup's reference to a row for its backward pass: the row number in the low 40 bits, and in the 13 bits
// above them how often the row has been freed (modulo 2^13), its generation. If rows are never freed, a
// reference is the row number. The other bits are 0. In the gradient of a table in parts on several servers,
// which only a worker has, they are the number of the part.
constexpr int kRowNumberBits = 40;
constexpr int kGenerationBits = 13;
constexpr int kReferenceBits = kRowNumberBits + kGenerationBits;
constexpr int64_t kMaxRows = int64_t{1} << kRowNumberBits;
constexpr int64_t kMaxParts = int64_t{1} << (63 - kReferenceBits);
constexpr uint32_t kGenerationMask = (uint32_t{1} << kGenerationBits) - 1;

constexpr uint32_t NextGeneration(uint32_t generation) { return (generation + 1) & kGenerationMask; }
constexpr int64_t MakeRowReference(int64_t row, uint32_t generation) {
  return static_cast<int64_t>(generation) << kRowNumberBits | row;
}
// The reference must not be negative.
constexpr int64_t RowOf(int64_t reference) { return reference & (kMaxRows - 1); }

}  // namespace sok

#endif  // SOK_CC_TABLE_ROW_REFERENCE_H_
