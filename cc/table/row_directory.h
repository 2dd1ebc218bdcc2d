#ifndef SOK_CC_TABLE_ROW_DIRECTORY_H_
#define SOK_CC_TABLE_ROW_DIRECTORY_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/index/id_index.h"
#include "cc/store/row_column.h"
#include "cc/table/bitmap.h"
#include "cc/table/row_reference.h"

namespace sok {

// Which id has which row: the index, the id of each row, and the rows that are free again.
//
// New ids get the rows that were freed, the last freed first, then new ones in order. A row that was freed
// has a new generation, so that whoever remembers the row can tell that it is no longer the same one's.
//
// Thread safety: any number of threads may call const members at the same time. Move-only.
class RowDirectory {
 public:
  static constexpr int64_t kAbsent = IdIndex::kAbsent;

  int64_t size() const { return index_.size(); }
  // Row numbers that were ever in use are below.
  int64_t row_limit() const { return row_limit_; }
  // row_limit() once `n` more ids are inserted.
  int64_t RowLimitWith(int64_t n) const;
  bool in_use(int64_t row) const { return in_use_[row]; }
  // Of a row in use.
  int64_t id(int64_t row) const { return ids_[row]; }
  int64_t bytes() const { return index_.bytes() + ids_.bytes() + generations_.bytes(); }

  // rows[i] = the row of ids[i], or kAbsent; see IdIndex::Find.
  void Find(Span<const int64_t> ids, Span<int64_t> rows) const { index_.Find(ids, rows); }

  // Makes room for `ids` ids in all and for the rows [0, rows). ResourceExhausted where memory does not
  // suffice; the directory is then as it was.
  Status Reserve(int64_t ids, int64_t rows);
  // Gives ids that are distinct and absent their rows, in order. There is room for them.
  Status Insert(Span<const int64_t> ids, Span<int64_t> rows);

  // Makes room for freeing `n` rows. ResourceExhausted as above.
  Status PrepareErase(int64_t n);
  // Frees a row in use; room for it was made.
  void Erase(int64_t row);

  // Whether a row was ever freed; before, references are row numbers.
  bool has_erased() const { return has_erased_; }
  // What to remember of a row in use in order to ask later whether it is still the same one's.
  int64_t Reference(int64_t row) const { return MakeRowReference(row, has_erased_ ? generations_[row] : 0); }
  // Whether the row that a reference below row_limit() stands for has not been freed since.
  bool IsCurrent(int64_t reference) const {
    const int64_t row = RowOf(reference);
    return in_use_[row] && Reference(row) == reference;
  }

 private:
  IdIndex index_;
  RowColumn<int64_t> ids_;
  Bitmap in_use_;
  std::vector<int64_t> free_;
  RowColumn<uint32_t> generations_;  // of rows that were addressable at the last PrepareErase or Reserve
  bool has_erased_ = false;
  int64_t row_limit_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_TABLE_ROW_DIRECTORY_H_
