#ifndef SOK_CC_TABLE_BITMAP_H_
#define SOK_CC_TABLE_BITMAP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/within_memory.h"

namespace sok {

// One bit for each number from 0, all clear at first. Not thread-safe.
class Bitmap {
 public:
  // Makes room for the bits [0, bits); never shrinks. ResourceExhausted if memory runs out.
  Status Reserve(int64_t bits) {
    const size_t words = static_cast<size_t>((bits + 63) / 64);
    if (words <= words_.size()) return OkStatus();
    return WithinMemory([&] {
      words_.resize(words);
      return OkStatus();
    });
  }

  // The bit must be below the reserved size.
  void Set(int64_t i) { words_[i / 64] |= Mask(i); }
  void Clear(int64_t i) { words_[i / 64] &= ~Mask(i); }
  // Bits beyond the reserved size are clear.
  bool operator[](int64_t i) const {
    return static_cast<size_t>(i / 64) < words_.size() && (words_[i / 64] & Mask(i)) != 0;
  }

  void ClearAll() { words_.assign(words_.size(), 0); }
  // Sets the bits that `other` has set. Its bits beyond the reserved size must be clear.
  void SetAllOf(const Bitmap& other) {
    const size_t words = std::min(words_.size(), other.words_.size());
    for (size_t w = 0; w < words; ++w) words_[w] |= other.words_[w];
  }

 private:
  static uint64_t Mask(int64_t i) { return uint64_t{1} << (i % 64); }

  std::vector<uint64_t> words_;
};

}  // namespace sok

#endif  // SOK_CC_TABLE_BITMAP_H_
