#ifndef SOK_CC_TABLE_ROW_USAGE_H_
#define SOK_CC_TABLE_ROW_USAGE_H_

#include <cstdint>
#include <optional>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/store/row_column.h"
#include "cc/table/table_options.h"

namespace sok {

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

#endif  // SOK_CC_TABLE_ROW_USAGE_H_
