#ifndef SOK_CC_GROUP_TABLE_ROWS_H_
#define SOK_CC_GROUP_TABLE_ROWS_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/lookup_plan.h"
#include "cc/table/table.h"

namespace sok {

// Finds the rows of a part's distinct ids, part->rows, and makes them current. In training, absent ids that
// the table admits are inserted: see TablePart. If the table counts, occurrences[i] is how often entry i of
// part->inverse was looked up; empty means once each. The caller holds the table's lock.
Status ResolveRows(Executor& executor, Table* table, bool training, Span<const int32_t> occurrences,
                   TablePart* part);

// Pointers to the weights of some ids. Those of ids without a row point into `initial`, which holds their
// initial values or, if the table's admission filters ids, one row of its default value.
struct RowPointers {
  std::vector<const float*> rows;
  std::vector<float> initial;

  // `numbers` are the row numbers of `ids`, or references to the rows.
  void Fill(const Table& table, Span<const int64_t> ids, Span<const int64_t> numbers);

  // Fill in two steps, for callers that decide by the number of ids without a row. PointToRows returns that
  // number and leaves their pointers null until MakeInitialRows.
  int64_t PointToRows(const Table& table, Span<const int64_t> numbers);
  void MakeInitialRows(const Table& table, Span<const int64_t> ids, int64_t absent);
};

}  // namespace sok

#endif  // SOK_CC_GROUP_TABLE_ROWS_H_
