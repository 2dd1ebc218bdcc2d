#include "cc/table/row_changes.h"

#include <algorithm>
#include <utility>

namespace sok {
namespace {

void SortDistinct(std::vector<int64_t>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

}  // namespace

Status RowChanges::Start(int64_t rows) {
  const bool tracked_before = std::exchange(tracks_, true);
  const Status status = Reserve(rows, 0);
  if (!status.ok()) tracks_ = tracked_before;
  return status;
}

Status RowChanges::Reserve(int64_t rows, int64_t erasures) {
  if (!tracks_) return OkStatus();
  SOK_RETURN_IF_ERROR(changed_.Reserve(rows));
  SOK_RETURN_IF_ERROR(saving_.Reserve(rows));
  return WithinMemory([&] {
    const size_t needed = erased_.size() + static_cast<size_t>(erasures);
    if (needed <= erased_.capacity()) return OkStatus();
    // An id may be erased many times between two saves; it is kept once.
    SortDistinct(&erased_);
    erased_.reserve(2 * (erased_.size() + static_cast<size_t>(erasures)));
    return OkStatus();
  });
}

void RowChanges::MarkErased(int64_t row, int64_t id) {
  if (!tracks_) return;
  changed_.Clear(row);
  saving_.Clear(row);
  erased_.push_back(id);
}

std::vector<int64_t> RowChanges::erased() const {
  std::vector<int64_t> ids = saving_erased_;
  ids.insert(ids.end(), erased_.begin(), erased_.end());
  SortDistinct(&ids);
  return ids;
}

void RowChanges::BeginSave() {
  saving_.SetAllOf(changed_);
  changed_.ClearAll();
  saving_erased_.insert(saving_erased_.end(), erased_.begin(), erased_.end());
  erased_.clear();
}

void RowChanges::EndSave(bool ok) {
  if (!ok) {
    changed_.SetAllOf(saving_);
    erased_.insert(erased_.end(), saving_erased_.begin(), saving_erased_.end());
  }
  saving_.ClearAll();
  saving_erased_.clear();
}

}  // namespace sok
