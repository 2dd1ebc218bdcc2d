#ifndef SOK_CC_BASE_CRC32C_H_
#define SOK_CC_BASE_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace sok {

// CRC-32C (Castagnoli), the checksum of TensorFlow's checkpoints. Uses the processor's instruction for it if
// there is one.
uint32_t Crc32c(const void* data, int64_t bytes);
inline uint32_t Crc32c(std::string_view text) {
  return Crc32c(text.data(), static_cast<int64_t>(text.size()));
}
// The same without the instruction.
uint32_t PortableCrc32c(const void* data, int64_t bytes);

// The checksum of A followed by B, given those of both and the length of B.
uint32_t CombineCrc32c(uint32_t of_a, uint32_t of_b, int64_t bytes_of_b);

// TensorFlow stores checksums in this form.
inline uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
inline uint32_t UnmaskCrc32c(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated << 15) | (rotated >> 17);
}

}  // namespace sok

#endif  // SOK_CC_BASE_CRC32C_H_
