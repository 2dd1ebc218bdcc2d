// The passes of a lookup between rows and outputs. Rows are in the table or in a message.
#ifndef SOK_CC_CPU_GROUP_LOOKUP_PASSES_H_
#define SOK_CC_CPU_GROUP_LOOKUP_PASSES_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/function_ref.h"
#include "cc/base/mutex.h"
#include "cc/base/shared_loop.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/pooling/pool.h"
#include "cc/cpu/table/table.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// Calls work(executor, i) for every i in [0, n). With enough parts to keep all threads busy, the parts run in
// parallel, each on one thread; otherwise one after the other, each with all threads. Returns the error of
// the lowest i that had one; ResourceExhausted if memory runs out.
inline Status ForEachPart(Executor& executor, int64_t n, FunctionRef<Status(Executor&, int64_t)> work) {
  if (n < executor.concurrency()) {
    for (int64_t i = 0; i < n; ++i) SOK_RETURN_IF_ERROR(WithinMemory([&] { return work(executor, i); }));
    return OkStatus();
  }
  // A part is a table or a lookup of a batch: worth a thread of its own.
  constexpr int64_t kPartNs = 50 * 1000;
  LowestError error;
  // A free thread takes the next part: parts differ in size, and with fixed ranges a delayed thread would
  // keep the others waiting.
  const int64_t threads = executor.concurrency();
  std::atomic<int64_t> next{0};
  executor.ParallelFor(threads, n * kPartNs / threads, [&](int64_t /*begin*/, int64_t /*end*/) {
    InlineExecutor inner;
    for (int64_t i = next++; i < n; i = next++) {
      error.Add(i, WithinMemory([&] { return work(inner, i); }));
    }
  });
  return error.status();
}

// One lookup of a group: ids of one feature, looked up in one table.
struct LookupBags {
  int table = 0;        // position in the group's tables
  bool pooled = false;  // false: one output row per id
  Combiner combiner = Combiner::kSum;
  std::vector<int64_t> offsets;  // pooled: bag b holds ids [offsets[b], offsets[b + 1])
  std::vector<float> weights;    // empty, or one per id; finite
  // The caller's position of each id if the caller's ids were not ordered by bag, or some are in no bag; else
  // empty.
  std::vector<int64_t> order;
  int64_t first = 0;  // the lookup's ids are [first, first + count) of its table's
  int64_t count = 0;
  int64_t given = 0;  // the number of the caller's ids: more than `count` if some are in no bag

  int64_t num_bags() const { return pooled ? static_cast<int64_t>(offsets.size()) - 1 : count; }
};

// The ids that a group looks up in one table. Empty if they were read without merging duplicates.
struct TablePart {
  // Distinct ids in order of first occurrence. If admission leaves some without rows in training, those with
  // rows come first.
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse;  // for each id of the table its position in `unique`
  // For each distinct id a reference to its row (see record_layout.h), Table::kAbsent if it has none.
  std::vector<int64_t> rows;
  // Like `rows`, but kAbsent also for ids that are trained and yet read as the table's default value in this
  // lookup (Admission::before_lookup). Empty if there are none.
  std::vector<int64_t> read_rows;
  // How many of the first distinct ids are trained, and have gradients. 0 without training.
  int64_t trained = 0;

  // What the distinct ids read.
  const std::vector<int64_t>& rows_to_read() const { return read_rows.empty() ? rows : read_rows; }

  void Clear() {
    unique.clear();
    inverse.clear();
    rows.clear();
    read_rows.clear();
    trained = 0;
  }
};

// A group of lookups in one step. The backward pass reuses what the forward pass found (distinct ids and
// their rows), so that no id is looked up twice in a step.
struct LookupPlan {
  bool training = true;  // false: unseen ids are not inserted, and the group has no gradients
  std::vector<LookupBags> lookups;
  std::vector<TablePart> parts;  // one per table of the group
};

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
