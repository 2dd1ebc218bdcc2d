#ifndef SOK_CC_CPU_DEDUP_PROBE_TABLE_H_
#define SOK_CC_CPU_DEDUP_PROBE_TABLE_H_

#include <cstdint>
#include <utility>

#include "cc/base/huge_pages.h"
#include "cc/base/prefetch.h"
#include "cc/base/status.h"

namespace sok {

// A hash table from ids to positions that is emptied in constant time: a slot is occupied only if it carries
// the number of the current use. For dedup's inner loop; linear probing. Not thread-safe.
class ProbeTable {
 public:
  // After `max_uses` uses the numbers restart, and all slots are cleared.
  explicit ProbeTable(uint32_t max_uses = UINT32_MAX) : max_uses_(max_uses) {}

  // Empties the table and makes room for `ids` distinct ids at a load of at most one half. ResourceExhausted
  // if memory runs out.
  Status Start(int64_t ids) {
    int64_t capacity = kMinCapacity;
    while (capacity < 2 * ids) capacity *= 2;
    if (capacity > allocated_) {
      SOK_ASSIGN_OR_RETURN(memory_, PageBuffer::Allocate(capacity * static_cast<int64_t>(sizeof(Slot))));
      slots_ = static_cast<Slot*>(memory_.data());
      allocated_ = capacity;
      use_ = 0;
    }
    if (use_ == max_uses_) {
      for (int64_t i = 0; i < allocated_; ++i) slots_[i].use = 0;
      use_ = 0;
    }
    ++use_;
    mask_ = static_cast<uint64_t>(capacity) - 1;
    return OkStatus();
  }

  // Distinct ids that there is room for.
  int64_t room() const { return static_cast<int64_t>((mask_ + 1) / 2); }

  void PrefetchSlot(uint64_t hash) const { Prefetch<true>(&slots_[hash & mask_]); }

  // The position stored with `id`, whose hash is `hash`; stores `position` first if there is none. The caller
  // counts the ids that it stores and stores at most room() + 1.
  int32_t FindOrStore(int64_t id, uint64_t hash, int32_t position) {
    uint64_t slot = hash & mask_;
    while (slots_[slot].use == use_ && slots_[slot].id != id) slot = (slot + 1) & mask_;
    // Whether the id is new is hard to predict, so the code does not branch on it: a slot that holds the id
    // is rewritten with the same values.
    const int32_t found = slots_[slot].use == use_ ? slots_[slot].position : position;
    slots_[slot] = Slot{id, use_, found};
    return found;
  }

 private:
  struct Slot {
    int64_t id;
    uint32_t use;
    int32_t position;
  };
  static constexpr int64_t kMinCapacity = 1024;

  const uint32_t max_uses_;
  PageBuffer memory_;
  Slot* slots_ = nullptr;
  int64_t allocated_ = 0;  // slots
  uint64_t mask_ = 0;      // slots in use - 1
  uint32_t use_ = 0;       // slots that were never taken have 0
};

}  // namespace sok

#endif  // SOK_CC_CPU_DEDUP_PROBE_TABLE_H_
