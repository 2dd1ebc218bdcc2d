#ifndef SOK_CC_TABLE_TABLE_H_
#define SOK_CC_TABLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/dedup/dedup.h"
#include "cc/index/id_index.h"
#include "cc/optimizers/optimizer.h"
#include "cc/store/row_store.h"
#include "cc/table/table_options.h"

namespace sok {

// The rows of one embedding variable that this rank owns: index, row records, and the state of the
// optimizer that trains them.
//
// Row numbers are dense, from 0 on, in the order of insertion, and stay valid for the table's life.
//
// Thread safety: none inside. mutex() guards everything; hold it around calls and for as long as pointers
// from weights() are in use. The executor's threads never take it, so holding it in ParallelFor is safe.
class Table {
 public:
  static constexpr int64_t kAbsent = IdIndex::kAbsent;
  // Rows up to 1 GiB: the bytes of 2^31 of them still fit 64 bits.
  static constexpr int64_t kMaxDim = int64_t{1} << 28;

  // Checks the options. A table without hashing gets all its rows at once, with their initial values.
  static StatusOr<std::unique_ptr<Table>> Create(Executor& executor, TableOptions options);

  std::mutex& mutex() const { return mutex_; }
  const TableOptions& options() const { return options_; }
  // Of Describe(options()): equal on ranks whose tables are the same.
  uint64_t definition_fingerprint() const { return definition_fingerprint_; }
  int64_t size() const { return num_rows_; }
  // Bytes of rows, slots and index.
  int64_t bytes() const;

  // rows[i] = row of ids[i]; kAbsent where there is none. For distinct ids owned by this rank.
  // Without hashing, an id outside [0, capacity * ranks) is InvalidArgument.
  Status Find(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows) const;

  // As Find, and gives ids that are not there new rows in the order of `ids`, with their initial values.
  // ResourceExhausted where the capacity or the memory does not suffice; then nothing was inserted.
  Status FindOrInsert(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows);

  // The initial values of `id`'s row, as an insertion would give it.
  void InitialRow(int64_t id, Span<float> row) const { FillRow(options_.initializer, id, row); }

  // Makes the weights of `rows` current, where the optimizer postpones the steps of untouched rows. Needed
  // before weights() is read. Rows are distinct.
  void BringUpToDate(Executor& executor, Span<const int64_t> rows);

  // The `dim` weights of a row in [0, size()).
  float* weights(int64_t row) { return store_.weights(row); }
  const float* weights(int64_t row) const { return store_.weights(row); }

  // One step of `optimizer` (a name that MakeOptimizer knows) with the gradients grads[i, :] of rows[i].
  // Rows may repeat unless `distinct`: gradients of one row are summed before the optimizer sees them, in
  // the order given. No rows at all is a step too. The first call gives the table its optimizer; another
  // one later is FailedPrecondition. A row outside [0, size()) is InvalidArgument. After an error the table
  // is as it was.
  Status ApplyGradients(Executor& executor, std::string_view optimizer, Span<const float> hyper,
                        Span<const int64_t> rows, const float* grads, bool distinct);

  // Sets the weights of keys[i] to values[i, :], inserting the keys that are not there. Keys are distinct;
  // those of other ranks are passed over. Errors as FindOrInsert; optimizer slots stay as they are.
  Status Assign(Executor& executor, Span<const int64_t> keys, const float* values);

  // The key of every row, by row number.
  std::vector<int64_t> Keys() const;

  // The optimizer's name, "" before the first step.
  std::string optimizer_name() const { return optimizer_ == nullptr ? "" : optimizer_->name(); }
  // Floats of optimizer slots per row, 0 before the first step.
  int64_t slot_width() const;
  // The slots of a row, slot_width() floats.
  const float* slots(int64_t row) const { return store_.weights(row) + options_.dim; }
  float* slots(int64_t row) { return store_.weights(row) + options_.dim; }
  // The optimizer's state beside the rows; "" without an optimizer. All rows are brought up to date first.
  std::string SerializeOptimizer(Executor& executor);
  // Gives a table without optimizer the one of `name` with the state that SerializeOptimizer returned.
  // `hyper` are its hyper-parameters at the first step, which say what new rows' slots start from.
  Status RestoreOptimizer(std::string_view name, Span<const float> hyper, std::string_view state);
  // The hyper-parameters of the first step; empty without an optimizer.
  Span<const float> first_hyper() const { return first_hyper_; }

 private:
  explicit Table(TableOptions options);

  Status Reserve(int64_t rows);
  Status InsertAbsent(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows, int64_t absent);
  Status FillDirectRows(Executor& executor);
  Status AttachOptimizer(std::string_view name, Span<const float> hyper);
  Status CheckRows(Span<const int64_t> rows) const;
  // An error of the optimizer, with the variable's name in front.
  Status Named(const Status& status) const;

  const TableOptions options_;
  const uint64_t definition_fingerprint_;
  mutable std::mutex mutex_;
  IdIndex index_;
  RowStore store_;
  int64_t num_rows_ = 0;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> first_hyper_;
  Deduplicator deduplicator_;  // of gradients whose rows repeat
};

}  // namespace sok

#endif  // SOK_CC_TABLE_TABLE_H_
