#include "cc/cpu/table/eviction_queue.h"

#include <algorithm>

#include "cc/base/status.h"

namespace sok {
namespace {

// Entries of freed rows may take as much room as those of rows in use.
constexpr int64_t kMaxShareOfEntries = 2;

}  // namespace

EvictionQueue::Entry EvictionQueue::EntryOf(const RowDirectory& directory, const RowUsage& usage,
                                            int64_t row) const {
  const int64_t last_used = (*usage.last_used)[row];
  const int64_t id = directory.id(row);
  const int64_t reference = directory.Reference(row);
  if (by_frequency_) return {(*usage.frequency)[row], last_used, id, reference};
  return {last_used, 0, id, reference};
}

Status EvictionQueue::Reserve(const RowDirectory& directory, int64_t rows) {
  if (!built_) return OkStatus();
  const int64_t most = kMaxShareOfEntries * (directory.size() + rows);
  if (static_cast<int64_t>(heap_.size()) + rows > most) Invalidate();
  return WithinMemory([&] {
    heap_.reserve(most);
    return OkStatus();
  });
}

Status EvictionQueue::Build(const RowDirectory& directory, const RowUsage& usage) {
  heap_.clear();
  heap_.reserve(directory.size());
  for (int64_t row = 0; row < directory.row_limit(); ++row) {
    if (directory.in_use(row)) heap_.push_back(EntryOf(directory, usage, row));
  }
  std::make_heap(heap_.begin(), heap_.end());
  built_ = true;
  return OkStatus();
}

Status EvictionQueue::PrepareTake(const RowDirectory& directory, const RowUsage& usage, int64_t n,
                                  int64_t kept, int64_t added) {
  SOK_RETURN_IF_ERROR(Reserve(directory, added));
  if (!built_) {
    SOK_RETURN_IF_ERROR(WithinMemory([&] { return Build(directory, usage); }));
    SOK_RETURN_IF_ERROR(Reserve(directory, added));
  }
  SOK_RETURN_IF_ERROR(is_kept_.Reserve(directory.row_limit()));
  return WithinMemory([&] {
    taken_.reserve(n);
    put_back_.reserve(kept);
    return OkStatus();
  });
}

void EvictionQueue::Push(const Entry& entry) {
  heap_.push_back(entry);
  std::push_heap(heap_.begin(), heap_.end());
}

EvictionQueue::Entry EvictionQueue::Pop() {
  std::pop_heap(heap_.begin(), heap_.end());
  const Entry entry = heap_.back();
  heap_.pop_back();
  return entry;
}

void EvictionQueue::Add(const RowDirectory& directory, const RowUsage& usage, Span<const int64_t> rows) {
  if (!built_) return;
  for (const int64_t row : rows) Push(EntryOf(directory, usage, row));
}

Span<const int64_t> EvictionQueue::Take(const RowDirectory& directory, const RowUsage& usage, int64_t n,
                                        Span<const int64_t> kept) {
  for (const int64_t row : kept) {
    if (row != RowDirectory::kAbsent) is_kept_.Set(row);
  }
  taken_.clear();
  put_back_.clear();
  while (static_cast<int64_t>(taken_.size()) < n && !heap_.empty()) {
    const Entry top = Pop();
    if (!directory.IsCurrent(top.reference)) continue;
    const int64_t row = RowOf(top.reference);
    const Entry now = EntryOf(directory, usage, row);
    if (is_kept_[row]) {
      put_back_.push_back(now);
    } else if (top.Key() != now.Key()) {
      Push(now);
    } else {
      taken_.push_back(row);
    }
  }
  for (const Entry& entry : put_back_) Push(entry);
  for (const int64_t row : kept) {
    if (row != RowDirectory::kAbsent) is_kept_.Clear(row);
  }
  return taken_;
}

}  // namespace sok
