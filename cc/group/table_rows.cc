#include "cc/group/table_rows.h"

#include <algorithm>
#include <iterator>

namespace sok {

Status ResolveRows(Executor& executor, Table* table, bool training, TablePart* part) {
  part->rows.resize(part->unique.size());
  if (training) {
    SOK_RETURN_IF_ERROR(table->FindForTraining(executor, part->unique, {}, Span<int64_t>(part->rows)));
    table->BringUpToDate(executor, part->rows);
    table->MakeReferences(Span<int64_t>(part->rows));
    return OkStatus();
  }
  SOK_RETURN_IF_ERROR(table->Find(executor, part->unique, Span<int64_t>(part->rows)));
  std::vector<int64_t> present;
  std::copy_if(part->rows.begin(), part->rows.end(), std::back_inserter(present),
               [](int64_t row) { return row != Table::kAbsent; });
  table->BringUpToDate(executor, present);
  table->MakeReferences(Span<int64_t>(part->rows));
  return OkStatus();
}

void RowPointers::Fill(const Table& table, const TablePart& part) {
  const int64_t dim = table.options().dim;
  const int64_t absent = std::count(part.rows.begin(), part.rows.end(), Table::kAbsent);
  initial.resize(absent * dim);
  rows.resize(part.rows.size());
  float* next = initial.data();
  for (size_t u = 0; u < rows.size(); ++u) {
    if (part.rows[u] != Table::kAbsent) {
      rows[u] = table.weights(RowOf(part.rows[u]));
      continue;
    }
    table.InitialRow(part.unique[u], Span<float>(next, dim));
    rows[u] = next;
    next += dim;
  }
}

}  // namespace sok
