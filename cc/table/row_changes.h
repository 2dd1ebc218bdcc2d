#ifndef SOK_CC_TABLE_ROW_CHANGES_H_
#define SOK_CC_TABLE_ROW_CHANGES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/huge_pages.h"
#include "cc/base/status.h"

namespace sok {

// One bit for each number from 0, all clear at first. Move-only: one that was moved from can only be
// destroyed or assigned to. Not thread-safe.
class Bitmap {
 public:
  // Makes room for the bits [0, bits), and copies none but a few; never shrinks. ResourceExhausted if memory
  // runs out.
  Status Reserve(int64_t bits) {
    const int64_t wanted = (bits + 63) / 64;
    if (wanted <= num_words_) return OkStatus();
    const int64_t bytes = wanted * kWordBytes;
    if (bytes > memory_.size()) SOK_RETURN_IF_ERROR(memory_.Grow(std::max(bytes, 2 * memory_.size())));
    num_words_ = wanted;
    return OkStatus();
  }

  // The bit must be below the reserved size.
  void Set(int64_t i) { words()[i / 64] |= Mask(i); }
  void Clear(int64_t i) { words()[i / 64] &= ~Mask(i); }
  // Bits beyond the reserved size are clear.
  bool operator[](int64_t i) const { return i / 64 < num_words_ && (words()[i / 64] & Mask(i)) != 0; }

  void ClearAll() { std::fill_n(words(), num_words_, 0); }
  // Sets the bits that `other` has set. Its bits beyond the reserved size must be clear.
  void SetAllOf(const Bitmap& other) {
    const int64_t both = std::min(num_words_, other.num_words_);
    for (int64_t w = 0; w < both; ++w) words()[w] |= other.words()[w];
  }

 private:
  static constexpr int64_t kWordBytes = sizeof(uint64_t);
  uint64_t* words() { return static_cast<uint64_t*>(memory_.data()); }
  const uint64_t* words() const { return static_cast<const uint64_t*>(memory_.data()); }
  static uint64_t Mask(int64_t i) { return uint64_t{1} << (i % 64); }

  PageBuffer memory_;
  int64_t num_words_ = 0;  // those behind it are 0
};

// The checkpoint since which a table's changes are tracked.
struct ChainEnd {
  std::string prefix;  // absolute; "" if there is none
  std::string id;      // of the save
};

// Which rows changed, and which ids were erased, since the last checkpoint of a chain.
//
// A save has two phases, because training continues before it is known whether the save succeeds: changes
// after BeginSave are kept apart, and remain when EndSave forgets the older ones. One save at a time. Not
// thread-safe.
class RowChanges {
 public:
  // Starts to track changes, and makes room for rows [0, rows). A second call only makes room. Before the
  // first, the other calls do nothing. ResourceExhausted if memory runs out; nothing has changed then.
  Status Start(int64_t rows);
  bool tracks() const { return tracks_; }
  // Makes room for rows [0, rows) and for `erasures` more erased ids, so that nothing below can fail.
  Status Reserve(int64_t rows, int64_t erasures);

  void MarkChanged(int64_t row) {
    if (tracks_) changed_.Set(row);
  }
  void MarkErased(int64_t row, int64_t id);

  // Whether the row has changed since the last successful save.
  bool changed(int64_t row) const { return changed_[row] || saving_[row]; }
  // Ids erased since then, each once, in increasing order. Some may have been inserted again, or were not
  // there at the last save.
  std::vector<int64_t> erased() const;

  // Starts a save of the changes so far.
  void BeginSave();
  // Ends it: forgets these changes if `ok`, else keeps them for the next save.
  void EndSave(bool ok);

 private:
  bool tracks_ = false;
  Bitmap changed_;
  Bitmap saving_;
  std::vector<int64_t> erased_;
  std::vector<int64_t> saving_erased_;
};

}  // namespace sok

#endif  // SOK_CC_TABLE_ROW_CHANGES_H_
