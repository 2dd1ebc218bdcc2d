#ifndef SOK_CC_INDEX_ID_INDEX_H_
#define SOK_CC_INDEX_ID_INDEX_H_

#include <cstdint>

#include "cc/base/function_ref.h"
#include "cc/base/hash.h"
#include "cc/base/huge_pages.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// A map from 64-bit ids to row numbers. Every int64 value is a legal id.
//
// Memory: one array of 2^k slots {id, row + 1} of 16 bytes, at most half of them taken. Zeroed memory is an
// empty index, so a large one costs nothing until it is filled.
// An id lives in its home slot or, when that is taken, in the next free one (linear probing): four slots
// share a cache line, so nearly every lookup reads one line. The home slot is the top k bits of Mix64(id):
// slots in order of position are in order of hash, and growing or walking the index streams through memory.
// Erasing moves later ids back instead of leaving a mark, so lookups do not get slower as ids come and go.
//
// Thread safety: any number of threads may call const members at the same time; other members need the index
// for themselves. Move-only.
class IdIndex {
 public:
  // What Find gives for an id that is not in the index.
  static constexpr int64_t kAbsent = -1;

  IdIndex() = default;
  IdIndex(IdIndex&& other) noexcept { *this = static_cast<IdIndex&&>(other); }
  IdIndex& operator=(IdIndex&& other) noexcept;

  int64_t size() const { return size_; }
  int64_t bytes() const { return capacity_ * static_cast<int64_t>(sizeof(Slot)); }

  // Makes room for `n` ids in all, so that inserting up to that many moves nothing. Never shrinks.
  // ResourceExhausted where memory does not suffice; the index is then as it was. Linear in size().
  Status Reserve(int64_t n);

  // rows[i] = the row of ids[i], or kAbsent. Ids may repeat. rows.size() == ids.size(). Work on many ids at
  // once: their memory reads overlap, and one id alone waits for all of its own.
  void Find(Span<const int64_t> ids, Span<int64_t> rows) const;

  // Adds ids[i] with rows[i] >= 0. The ids are distinct and absent. Grows as needed, to twice the size at
  // least; ResourceExhausted where memory does not suffice, and then none was added.
  Status Insert(Span<const int64_t> ids, Span<const int64_t> rows);

  // Takes `id` out; false where it is not there. The memory is kept.
  bool Erase(int64_t id);

  // Calls visit(id, row) for every id, in an order that depends on ids and capacity alone. `visit` must not
  // change the index.
  void ForEach(FunctionRef<void(int64_t id, int64_t row)> visit) const;

  // Takes out every id and gives the memory back.
  void Clear() { *this = IdIndex(); }

 private:
  struct Slot {
    int64_t id;
    int64_t row_plus_1;  // 0: the slot is free
  };

  uint64_t Home(int64_t id) const { return Mix64(static_cast<uint64_t>(id)) >> shift_; }
  Status Rehash(int64_t capacity);

  PageBuffer memory_;
  Slot* slots_ = nullptr;
  int64_t capacity_ = 0;  // slots: 0 or a power of two
  int shift_ = 0;         // 64 - log2(capacity_)
  int64_t size_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_INDEX_ID_INDEX_H_
