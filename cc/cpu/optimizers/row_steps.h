#ifndef SOK_CC_CPU_OPTIMIZERS_ROW_STEPS_H_
#define SOK_CC_CPU_OPTIMIZERS_ROW_STEPS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/prefetch.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/store/slabs.h"

namespace sok {

// For optimizers that postpone a step's effect on rows without a gradient: the step at which each row was
// last current. Steps are counted from the last Restart. Threads may call SetCurrent, SetCurrentAt and missed
// for different rows at the same time.
class RowSteps {
 public:
  Status Reserve(int64_t rows) { return last_current_.Reserve(rows); }

  uint32_t now() const { return now_; }
  // Counts a step. Call SetCurrentAt for the rows that it updated, before or after.
  void Advance() { ++now_; }

  // The number of steps that `row` has missed.
  uint32_t missed(int64_t row) const { return now_ - last_current_[row]; }
  // Marks `row` as current as of now(), or as of `step`.
  void SetCurrent(int64_t row) { last_current_[row] = now_; }
  void SetCurrentAt(int64_t row, uint32_t step) { last_current_[row] = step; }
  void PrefetchRow(int64_t row) const { Prefetch<true>(&last_current_[row]); }

  // Rows from this number on have never been in use, and need no catch-up.
  int64_t rows_in_use() const { return rows_in_use_; }
  void Use(int64_t row) { rows_in_use_ = std::max(rows_in_use_, row + 1); }
  void Use(Span<const int64_t> rows) {
    for (int64_t row : rows) Use(row);
  }

  // Counts steps from 0 again; all rows count as current.
  void Restart() {
    for (int64_t row = 0; row < rows_in_use_; ++row) last_current_[row] = 0;
    now_ = 0;
  }

  // Calls visit(rows) on consecutive pieces of [0, rows_in_use()), for passes over the whole table.
  void ForAllRows(FunctionRef<void(Span<const int64_t> rows)> visit) const {
    constexpr int64_t kPiece = 1 << 16;
    std::vector<int64_t> rows;
    for (int64_t first = 0; first < rows_in_use_; first += kPiece) {
      rows.resize(static_cast<size_t>(std::min(kPiece, rows_in_use_ - first)));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = first + static_cast<int64_t>(i);
      visit(rows);
    }
  }

 private:
  RowColumn<uint32_t> last_current_;
  uint32_t now_ = 0;
  int64_t rows_in_use_ = 0;
};

}  // namespace sok

#endif  // SOK_CC_CPU_OPTIMIZERS_ROW_STEPS_H_
