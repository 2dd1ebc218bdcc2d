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

// Finds the rows of a part's distinct ids, part->rows, and makes them current. In training, ids that are not
// there are inserted, as far as the table admits them: see TablePart. Where the table counts, occurrences[i]
// is how often the id of part->inverse[i] was looked up for this entry; empty means once. The table is locked
// by the caller.
Status ResolveRows(Executor& executor, Table* table, bool training, Span<const int32_t> occurrences,
                   TablePart* part);

// Pointers to the weights of some ids. Ids without a row point into `initial`, which holds the values that an
// insertion would give them, or where the table has admission, its default value.
struct RowPointers {
  std::vector<const float*> rows;
  std::vector<float> initial;

  // `numbers` are the row numbers of `ids`, or references to the rows.
  void Fill(const Table& table, Span<const int64_t> ids, Span<const int64_t> numbers);

  // Fill in two steps, for who wants to know in between how many ids are without a row, which the first
  // returns: their pointers are null until the second.
  int64_t PointToRows(const Table& table, Span<const int64_t> numbers);
  void MakeInitialRows(const Table& table, Span<const int64_t> ids, int64_t absent);
};

}  // namespace sok

#endif  // SOK_CC_GROUP_TABLE_ROWS_H_
