#ifndef SOK_CC_CPU_TABLE_ROW_DIRECTORY_H_
#define SOK_CC_CPU_TABLE_ROW_DIRECTORY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/index/id_index.h"
#include "cc/cpu/store/slabs.h"
#include "cc/table/record_layout.h"
#include "cc/table/row_changes.h"
#include "cc/table/table_options.h"

namespace sok {

// The mapping between ids and rows: the index, the id of each row, and the freed rows.
//
// New ids get freed rows, the last freed first, then new rows in order. Freeing a row increments its
// generation, so that a remembered reference shows that the row no longer belongs to the same id.
//
// Thread safety: any number of threads may call const members at the same time. Move-only.
class RowDirectory {
 public:
  static constexpr int64_t kAbsent = IdIndex::kAbsent;

  int64_t size() const { return index_.size(); }
  // All row numbers that were ever in use are below this.
  int64_t row_limit() const { return row_limit_; }
  // row_limit() after inserting `n` more ids.
  int64_t RowLimitWith(int64_t n) const;
  bool in_use(int64_t row) const { return in_use_[row]; }
  // The id of a row in use.
  int64_t id(int64_t row) const { return ids_[row]; }
  int64_t bytes() const { return index_.bytes() + ids_.bytes() + generations_.bytes(); }

  // rows[i] = the row of ids[i], or kAbsent; see IdIndex::Find.
  void Find(Span<const int64_t> ids, Span<int64_t> rows) const { index_.Find(ids, rows); }

  // Makes room for `ids` ids in total and for the rows [0, rows). ResourceExhausted if memory runs out; the
  // directory is then unchanged.
  Status Reserve(int64_t ids, int64_t rows);
  // The rows that the next rows.size() ids get, in order.
  void NextRows(Span<int64_t> rows) const;
  // Gives the rows of NextRows to ids, which are distinct and absent. Needs a Reserve.
  Status Insert(Span<const int64_t> ids, Span<const int64_t> rows);

  // Makes room to free `n` rows. ResourceExhausted as above.
  Status PrepareErase(int64_t n);
  // Frees a row in use. Needs a PrepareErase.
  void Erase(int64_t row);

  // Whether a row was ever freed. Until then references are row numbers.
  bool has_erased() const { return has_erased_; }
  // A reference to a row in use. Given it later, IsCurrent tells whether the row still belongs to the same
  // id.
  int64_t Reference(int64_t row) const { return MakeRowReference(row, has_erased_ ? generations_[row] : 0); }
  // Whether the row of a reference below row_limit() has not been freed since the reference was made.
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

// How the rows of a table are used: one column of numbers for each kind that the table's options need.
struct RowUsage {
  using Column = std::optional<RowColumn<int64_t>>;

  explicit RowUsage(const TableOptions& options) {
    const bool admits = options.admission.kind != Admission::Kind::kNone;
    if (admits || options.on_full == OnFull::kEvictLfu) frequency.emplace();
    if (options.eviction.kind == Eviction::Kind::kGlobalStep) last_step.emplace();
    if (options.on_full != OnFull::kError) last_used.emplace();
  }

  // Makes rows [0, rows) addressable. ResourceExhausted if memory runs out.
  Status Reserve(int64_t rows) {
    for (Column* column : {&frequency, &last_step, &last_used}) {
      if (column->has_value()) SOK_RETURN_IF_ERROR((*column)->Reserve(rows));
    }
    return OkStatus();
  }

  // Initializes new rows at a table's steps() and uses().
  void Start(Span<const int64_t> rows, int64_t steps, int64_t uses) {
    for (const int64_t row : rows) {
      if (frequency.has_value()) (*frequency)[row] = 0;
      if (last_step.has_value()) (*last_step)[row] = steps;
      if (last_used.has_value()) (*last_used)[row] = uses;
    }
  }

  int64_t bytes() const {
    int64_t bytes = 0;
    for (const Column* column : {&frequency, &last_step, &last_used}) {
      if (column->has_value()) bytes += (*column)->bytes();
    }
    return bytes;
  }

  Column frequency;  // occurrences in training lookups
  Column last_step;  // the step of the row's last update, or the table's steps() at its insertion
  Column last_used;  // the table's uses() at the row's last training lookup
};

}  // namespace sok

#endif  // SOK_CC_CPU_TABLE_ROW_DIRECTORY_H_
