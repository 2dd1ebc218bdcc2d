#include "cc/cpu/table/row_directory.h"

#include <algorithm>

#include "cc/base/status.h"

namespace sok {

int64_t RowDirectory::RowLimitWith(int64_t n) const {
  return row_limit_ + std::max<int64_t>(n - static_cast<int64_t>(free_.size()), 0);
}

Status RowDirectory::Reserve(int64_t ids, int64_t rows) {
  if (rows > kMaxRows) return ResourceExhausted("cannot make room for ", rows, " rows");
  SOK_RETURN_IF_ERROR(ids_.Reserve(rows));
  SOK_RETURN_IF_ERROR(in_use_.Reserve(rows));
  if (has_erased_) SOK_RETURN_IF_ERROR(generations_.Reserve(rows));
  return index_.Reserve(ids);
}

void RowDirectory::NextRows(Span<int64_t> rows) const {
  const int64_t freed = static_cast<int64_t>(free_.size());
  for (int64_t i = 0; i < rows.size(); ++i)
    rows[i] = i < freed ? free_[freed - 1 - i] : row_limit_ + i - freed;
}

Status RowDirectory::Insert(Span<const int64_t> ids, Span<const int64_t> rows) {
  SOK_RETURN_IF_ERROR(index_.Insert(ids, rows));
  row_limit_ = RowLimitWith(ids.size());
  free_.resize(std::max<int64_t>(static_cast<int64_t>(free_.size()) - ids.size(), 0));
  for (int64_t i = 0; i < ids.size(); ++i) {
    ids_[rows[i]] = ids[i];
    in_use_.Set(rows[i]);
  }
  return OkStatus();
}

Status RowDirectory::PrepareErase(int64_t n) {
  SOK_RETURN_IF_ERROR(generations_.Reserve(ids_.rows()));
  return WithinMemory([&] {
    const size_t needed = free_.size() + static_cast<size_t>(n);
    if (needed > free_.capacity()) free_.reserve(std::max(needed, 2 * free_.capacity()));
    return OkStatus();
  });
}

void RowDirectory::Erase(int64_t row) {
  index_.Erase(ids_[row]);
  in_use_.Clear(row);
  generations_[row] = NextGeneration(generations_[row]);
  has_erased_ = true;
  free_.push_back(row);
}

}  // namespace sok
