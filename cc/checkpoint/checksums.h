#ifndef SOK_CC_CHECKPOINT_CHECKSUMS_H_
#define SOK_CC_CHECKPOINT_CHECKSUMS_H_

#include <cstdint>
#include <string_view>

namespace sok {

// Each block of this size has a checksum; the last block of a file may be shorter.
constexpr int64_t kBlockBytes = 1 << 20;

constexpr int64_t BlocksOf(int64_t bytes) { return bytes / kBlockBytes + (bytes % kBlockBytes != 0 ? 1 : 0); }

// zlib's CRC-32: CRC-32/ISO-HDLC.
uint32_t Crc32(const void* data, int64_t bytes);
inline uint32_t Crc32(std::string_view text) { return Crc32(text.data(), static_cast<int64_t>(text.size())); }

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_CHECKSUMS_H_
