// The passes of a lookup between rows and outputs. Rows are in the table or in a message.
#ifndef SOK_CC_CPU_GROUP_LOOKUP_PASSES_H_
#define SOK_CC_CPU_GROUP_LOOKUP_PASSES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/group/lookup_plan.h"
#include "cc/cpu/pooling/pool.h"
#include "cc/cpu/table/table.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// Finds the rows of a part's distinct ids, part->rows, and makes them current. In training, absent ids that
// the table admits are inserted: see TablePart. If the table counts, occurrences[i] is how often entry i of
// part->inverse was looked up; empty means once each. The caller holds the table's lock.
Status ResolveRows(Executor& executor, Table* table, bool training, Span<const int32_t> occurrences,
                   TablePart* part);

// Pointers to the weights of some ids. Those of ids without a row point to their initial values or, if the
// table's admission filters ids, to one row of its default value.
class RowPointers {
 public:
  RowsInPlace rows() const { return list_.rows(); }

  // `numbers` are the row numbers of `ids`, or references to the rows.
  void Fill(const Table& table, Span<const int64_t> ids, Span<const int64_t> numbers);

  // Fill in two steps, for callers that decide by the number of ids without a row. PointToRows returns that
  // number and leaves their pointers null until MakeInitialRows.
  int64_t PointToRows(const Table& table, Span<const int64_t> numbers);
  void MakeInitialRows(const Table& table, Span<const int64_t> ids, int64_t absent);

 private:
  RowPointerList list_;
  std::vector<float> initial_;  // rows without a number; one row of scratch memory for those in 16 bits
  std::vector<uint16_t> initial_halves_;
};

// Holds the mutexes of several tables, each once, locked in order of address, so that holders of overlapping
// sets cannot deadlock.
class TableLocks {
 public:
  // The analysis cannot follow a set of mutexes whose size is known only at run time.
  explicit TableLocks(Span<Table* const> tables) SOK_NO_THREAD_SAFETY_ANALYSIS
      : tables_(tables.begin(), tables.end()) {
    std::sort(tables_.begin(), tables_.end());
    tables_.erase(std::unique(tables_.begin(), tables_.end()), tables_.end());
    for (Table* table : tables_) {
      table->mutex().lock();
      table->BeginCall();
    }
  }
  ~TableLocks() SOK_NO_THREAD_SAFETY_ANALYSIS {
    for (Table* table : tables_) table->mutex().unlock();
  }
  TableLocks(const TableLocks&) = delete;
  TableLocks& operator=(const TableLocks&) = delete;

 private:
  std::vector<Table*> tables_;
};

// Writes a lookup's output. `rows` are those of the distinct ids of `part`, `dim` elements each.
void WriteOutput(Executor& executor, const LookupBags& lookup, const TablePart& part, const RowsInPlace& rows,
                 int64_t dim, const OutputRows& output, OutputStores stores = OutputStores::kCached);

// The gradient of each occurrence of table `t`'s ids: scales[i] * *rows[i], or *rows[i] if scales is empty.
struct OccurrenceGradients {
  std::vector<const float*> rows;
  std::vector<float> scales;
};
void GradientsOfOccurrences(const LookupPlan& plan, int t, Span<const GradientRows> gradients,
                            OccurrenceGradients* result);

// The gradient of the weights of lookup `l`, in the order of the caller's ids: weight_grads[given], zeros for
// ids that are in no bag. `rows` are what the forward pass read for the distinct ids of the lookup's table.
void LookupWeightGradients(Executor& executor, const LookupPlan& plan, int l, const RowsInPlace& rows,
                           int64_t dim, const GradientRows& gradient, Span<float> weight_grads);

}  // namespace sok

#endif  // SOK_CC_CPU_GROUP_LOOKUP_PASSES_H_
