// Numbers as they are in the indexes of TensorFlow's checkpoints.
#ifndef SOK_CC_CHECKPOINT_WIRE_H_
#define SOK_CC_CHECKPOINT_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sok {

// 7 bits a byte, the lowest first; all bytes but the last have the highest bit set.
inline void PutVarint(uint64_t value, std::string* bytes) {
  for (; value >= 128; value >>= 7) bytes->push_back(static_cast<char>(value | 128));
  bytes->push_back(static_cast<char>(value));
}
// Little-endian.
inline void PutFixed32(uint32_t value, std::string* bytes) {
  for (int shift = 0; shift < 32; shift += 8) bytes->push_back(static_cast<char>(value >> shift));
}

// Takes numbers and strings off the front of untrusted bytes. After the first failure all others fail.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  bool empty() const { return left_.empty(); }
  std::string_view left() const { return left_; }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; ok_ && shift < 64 && !left_.empty(); shift += 7) {
      const uint64_t byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      // The tenth byte has one bit.
      if (shift == 63 && byte > 1) break;
      *value |= (byte & 127) << shift;
      if (byte < 128) return true;
    }
    return ok_ = false;
  }
  bool Fixed32(uint32_t* value) {
    std::string_view bytes;
    *value = 0;
    if (!Bytes(4, &bytes)) return false;
    for (size_t i = 0; i < 4; ++i) *value |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return true;
  }
  bool Bytes(uint64_t count, std::string_view* bytes) {
    if (!ok_ || count > left_.size()) return ok_ = false;
    *bytes = left_.substr(0, count);
    left_.remove_prefix(count);
    return true;
  }
  // Bytes after their number.
  bool Prefixed(std::string_view* bytes) {
    uint64_t count;
    return Varint(&count) && Bytes(count, bytes);
  }

 private:
  std::string_view left_;
  bool ok_ = true;
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_WIRE_H_
