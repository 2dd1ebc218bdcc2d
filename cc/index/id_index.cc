#include "cc/index/id_index.h"

#include <algorithm>
#include <utility>

namespace sok {
namespace {

constexpr int64_t kMinCapacity = 16;
// Far above any memory; keeps sizes in bytes from overflowing.
constexpr int64_t kMaxIds = int64_t{1} << 56;
// How many ids ahead a slot is asked for: about as many lines as a core keeps on their way, and a power of
// two.
constexpr int64_t kAhead = 32;

}  // namespace

IdIndex& IdIndex::operator=(IdIndex&& other) noexcept {
  memory_ = std::move(other.memory_);
  slots_ = std::exchange(other.slots_, nullptr);
  capacity_ = std::exchange(other.capacity_, 0);
  shift_ = std::exchange(other.shift_, 0);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

Status IdIndex::Reserve(int64_t n) {
  if (n > kMaxIds) return ResourceExhausted("cannot make room for ", n, " ids");
  if (2 * n <= capacity_) return OkStatus();
  int64_t capacity = kMinCapacity;
  while (capacity < 2 * n) capacity *= 2;
  return Rehash(capacity);
}

Status IdIndex::Rehash(int64_t capacity) {
  StatusOr<PageBuffer> memory = PageBuffer::Allocate(capacity * static_cast<int64_t>(sizeof(Slot)));
  if (!memory.ok()) {
    return ResourceExhausted("an index with room for ", capacity / 2, " ids: ", memory.status().message());
  }
  const IdIndex old = std::move(*this);
  memory_ = std::move(memory.value());
  slots_ = static_cast<Slot*>(memory_.data());
  capacity_ = capacity;
  shift_ = 64 - __builtin_ctzll(capacity);
  size_ = old.size_;
  const uint64_t mask = capacity - 1;
  for (int64_t i = 0; i < old.capacity_; ++i) {
    if (old.slots_[i].row_plus_1 == 0) continue;
    uint64_t slot = Home(old.slots_[i].id);
    while (slots_[slot].row_plus_1 != 0) slot = (slot + 1) & mask;
    slots_[slot] = old.slots_[i];
  }
  return OkStatus();
}

void IdIndex::Find(Span<const int64_t> ids, Span<int64_t> rows) const {
  const int64_t n = ids.size();
  if (size_ == 0) {
    std::fill(rows.begin(), rows.begin() + n, kAbsent);
    return;
  }
  const uint64_t mask = capacity_ - 1;
  uint64_t homes[kAhead];
  const int64_t first = std::min(n, kAhead);
  for (int64_t i = 0; i < first; ++i) {
    homes[i] = Home(ids[i]);
    __builtin_prefetch(&slots_[homes[i]]);
  }
  for (int64_t i = 0; i < n; ++i) {
    uint64_t slot = homes[i % kAhead];
    if (i + kAhead < n) {
      homes[i % kAhead] = Home(ids[i + kAhead]);
      __builtin_prefetch(&slots_[homes[i % kAhead]]);
    }
    while (slots_[slot].id != ids[i] && slots_[slot].row_plus_1 != 0) slot = (slot + 1) & mask;
    // A free slot holds row + 1 = 0, and its id, whatever it is, decides nothing: 0 - 1 is kAbsent.
    rows[i] = slots_[slot].row_plus_1 - 1;
  }
}

Status IdIndex::Insert(Span<const int64_t> ids, Span<const int64_t> rows) {
  const int64_t n = ids.size();
  // Doubling keeps the cost of many small insertions linear; Reserve rounds up to a power of two.
  SOK_RETURN_IF_ERROR(Reserve(size_ + n));
  const uint64_t mask = capacity_ - 1;
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(&slots_[Home(ids[i + kAhead])], 1);
    uint64_t slot = Home(ids[i]);
    while (slots_[slot].row_plus_1 != 0) slot = (slot + 1) & mask;
    slots_[slot] = Slot{ids[i], rows[i] + 1};
  }
  size_ += n;
  return OkStatus();
}

bool IdIndex::Erase(int64_t id) {
  if (size_ == 0) return false;
  const uint64_t mask = capacity_ - 1;
  uint64_t hole = Home(id);
  while (slots_[hole].row_plus_1 != 0 && slots_[hole].id != id) hole = (hole + 1) & mask;
  if (slots_[hole].row_plus_1 == 0) return false;
  // Every id behind the hole, up to the next free slot, that the hole would cut off from its home moves into
  // the hole, and leaves one of its own.
  for (uint64_t slot = (hole + 1) & mask; slots_[slot].row_plus_1 != 0; slot = (slot + 1) & mask) {
    const uint64_t from_home = (slot - Home(slots_[slot].id)) & mask;
    const uint64_t from_hole = (slot - hole) & mask;
    if (from_home < from_hole) continue;
    slots_[hole] = slots_[slot];
    hole = slot;
  }
  slots_[hole] = Slot{0, 0};
  --size_;
  return true;
}

void IdIndex::ForEach(FunctionRef<void(int64_t, int64_t)> visit) const {
  for (int64_t i = 0; i < capacity_; ++i) {
    if (slots_[i].row_plus_1 != 0) visit(slots_[i].id, slots_[i].row_plus_1 - 1);
  }
}

}  // namespace sok
