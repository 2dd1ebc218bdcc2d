// Hashing of ids and names, on host and device.
#ifndef SOK_CC_BASE_HASH_H_
#define SOK_CC_BASE_HASH_H_

#include <cstdint>
#include <string_view>

#include "cc/base/host_device.h"

namespace sok {

// A bijection of 64-bit words in which every input bit affects every output bit: the finalizer of
// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
SOK_HOST_DEVICE uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a of `size` bytes, the same on every platform. Seeds of tables and long names of checkpoints' files
// depend on it.
SOK_HOST_DEVICE uint64_t Fingerprint64(const char* bytes, uint64_t size) {
  uint64_t h = 0xcbf29ce484222325u;
  for (uint64_t i = 0; i < size; ++i) {
    h = (h ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3u;
  }
  return h;
}

inline uint64_t Fingerprint64(std::string_view text) { return Fingerprint64(text.data(), text.size()); }

}  // namespace sok

#endif  // SOK_CC_BASE_HASH_H_
