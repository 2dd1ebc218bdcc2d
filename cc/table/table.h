#ifndef SOK_CC_TABLE_TABLE_H_
#define SOK_CC_TABLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/dedup/dedup.h"
#include "cc/optimizers/optimizer.h"
#include "cc/placement/placement.h"
#include "cc/store/row_store.h"
#include "cc/table/admission_filter.h"
#include "cc/table/eviction_queue.h"
#include "cc/table/lookup_counts.h"
#include "cc/table/row_changes.h"
#include "cc/table/row_directory.h"
#include "cc/table/row_usage.h"
#include "cc/table/table_options.h"

namespace sok {

// The rows of one embedding variable that this rank holds: which keys have rows, the row records, how rows
// are used, and the state of the optimizer that trains them.
//
// Row numbers start at 0, in the order of insertion, and a row keeps its number for as long as its key is in
// the table. Rows of keys that went are given to new keys, the last freed first, before new numbers are.
//
// Thread safety: none inside. mutex() guards everything; hold it around calls and for as long as pointers
// from weights() are in use. The executor's threads never take it, so holding it in ParallelFor is safe.
class Table {
 public:
  static constexpr int64_t kAbsent = IdIndex::kAbsent;
  static constexpr int64_t kMaxDim = TableOptions::kMaxDim;

  // Checks the options. A table without hashing gets all its rows at once, with their initial values.
  static StatusOr<std::unique_ptr<Table>> Create(Executor& executor, TableOptions options);

  std::mutex& mutex() const { return mutex_; }
  const TableOptions& options() const { return options_; }
  // Of Describe(options()): equal on ranks whose tables are the same.
  uint64_t definition_fingerprint() const { return definition_fingerprint_; }
  // Rows in use; their numbers are below row_limit().
  int64_t size() const { return options_.use_hashtable ? directory_.size() : static_rows_.count; }
  int64_t row_limit() const { return options_.use_hashtable ? directory_.row_limit() : static_rows_.count; }
  bool in_use(int64_t row) const {
    return options_.use_hashtable ? directory_.in_use(row) : row < static_rows_.count;
  }
  // The key of a row in use.
  int64_t key(int64_t row) const {
    return options_.use_hashtable ? directory_.id(row) : static_rows_.KeyOf(row);
  }
  // The rows in use, and their keys, both by row number.
  std::vector<int64_t> Rows() const;
  std::vector<int64_t> Keys() const;
  // Calls visit(rows) on the rows in use, piece by piece, by row number.
  void ForEachPiece(FunctionRef<void(Span<const int64_t> rows)> visit) const;
  // Bytes of rows, slots, what is kept by row, index, and ids that wait for admission.
  int64_t bytes() const;

  // rows[i] = row of ids[i]; kAbsent where there is none. For ids that this rank holds, which may repeat;
  // those beyond rows.size() only have their memory asked for, see IdIndex::Find.
  // Without hashing, an id beyond the keys of the placement is InvalidArgument.
  Status Find(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows) const;

  // As Find, and gives ids that are not there new rows in the order of `ids`, with their initial values: what
  // loading needs, without admission, counting or eviction. ResourceExhausted where the capacity or the
  // memory does not suffice; then nothing was inserted.
  Status FindOrMake(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows);

  // What a training lookup does with its distinct ids, of which ids[i] occurs counts[i] >= 1 times: as
  // FindOrMake, but ids that options().admission does not admit yet get no row, kAbsent, and in a full table
  // rows of other ids make room as options().on_full says. `counts` is not read unless counts_lookups().
  // After an error the table is as it was.
  Status FindForTraining(Executor& executor, Span<const int64_t> ids, Span<const int64_t> counts,
                         Span<int64_t> rows);
  bool counts_lookups() const { return has_frequency(); }
  // Whether this rank counts and saves what it holds: a replica is counted and saved on rank 0 alone.
  bool represents_rows() const { return options_.placement.represents(options_.rank); }
  // Who owns a key; valid as long as the table.
  KeyOwners key_owners() const { return options_.placement.owners(options_.ranks); }
  // Whether a training lookup may leave ids without rows, which then read as admission.default_value.
  bool has_admission() const { return options_.admission.kind != Admission::Kind::kNone; }

  // What training lookups have done with the table. Counted here by FindForTraining; the rest by those who
  // know it, which may outlive the table. Needs no lock.
  const std::shared_ptr<LookupCounts>& lookup_counts() const { return lookup_counts_; }

  // The initial values of `id`'s row, as an insertion would give it.
  void InitialRow(int64_t id, Span<float> row) const { FillRow(options_.initializer, id, row); }

  // Makes the weights of `rows` current, where the optimizer postpones the steps of untouched rows. Needed
  // before weights() is read. Rows are distinct.
  void BringUpToDate(Executor& executor, Span<const int64_t> rows);
  // Whether weights may be read without it.
  bool is_up_to_date() const { return optimizer_ == nullptr || !optimizer_->has_catch_up(); }

  // The `dim` weights of a row below row_limit().
  float* weights(int64_t row) { return store_.weights(row); }
  const float* weights(int64_t row) const { return store_.weights(row); }

  // Turns rows in use into references, which a lookup hands to its gradient: see row_reference.h. kAbsent
  // stays. References are row numbers until a row goes.
  void MakeReferences(Span<int64_t> rows) const;
  // InvalidArgument where the table never had a row of a reference; kAbsent passes unless `lowest` is 0.
  Status CheckReferences(Span<const int64_t> references, int64_t lowest = kAbsent) const;
  // Whether the row of a reference that passes is still its key's.
  bool IsCurrent(int64_t reference) const {
    return !directory_.has_erased() || directory_.IsCurrent(reference);
  }

  // One step of `optimizer` (a name that MakeOptimizer knows) with the gradients grads[i, :] of the row that
  // references[i] stands for. Rows may repeat unless `distinct`: gradients of one row are summed before the
  // optimizer sees them, in the order given. Gradients of rows that went since the lookup are dropped. No
  // rows at all is a step too. The first call gives the table its optimizer; another one later is
  // FailedPrecondition. A row that the table never had is InvalidArgument. After an error the table is as it
  // was.
  Status ApplyGradients(Executor& executor, std::string_view optimizer, Span<const float> hyper,
                        Span<const int64_t> references, const float* grads, bool distinct);
  // The same with gradients that are taken when they are needed, of distinct rows; CheckStep has passed.
  Status ApplyGradients(Executor& executor, std::string_view optimizer, Span<const float> hyper,
                        Span<const int64_t> references, const RowGradients& gradients);
  // The error that ApplyGradients with these arguments begins with, if any; changes nothing.
  Status CheckStep(std::string_view optimizer, Span<const float> hyper, Span<const int64_t> references) const;

  // Sets the weights of keys[i] to values[i, :], inserting the keys that are not there. Keys are distinct;
  // those that other ranks hold are passed over. Errors as FindOrMake; optimizer slots stay as they are.
  Status Assign(Executor& executor, Span<const int64_t> keys, const float* values);

  // Takes keys out, and out of those that wait for admission; those that are not there are passed over.
  // *erased = the rows that went. InvalidArgument without hashing; ResourceExhausted where memory does not
  // suffice, and then none went.
  Status Erase(Executor& executor, Span<const int64_t> keys, int64_t* erased);
  // Takes out what options().eviction says goes when a checkpoint is written. Errors as Erase.
  Status EvictForSave(Executor& executor, int64_t* evicted);

  // Steps taken, which are calls of ApplyGradients unless SetGlobalStep tells others, and training lookups:
  // what "long ago" is measured in.
  int64_t steps() const { return steps_; }
  int64_t uses() const { return uses_; }
  // As a checkpoint has them; `of_graph` as counts_global_steps().
  void SetClock(int64_t steps, int64_t uses, bool of_graph);
  // Tells the training program's global step, at least 0, which is that of the next ApplyGradients; steps()
  // are those of the program from here on. Where the table has counted its own until now, or the global step
  // of a checkpoint lies ahead, last steps are moved with steps(), so that rows are as old as they were, but
  // not older than the global step. Later a value below an earlier one does nothing to steps(). Before
  // EvictForSave, which takes it for the present.
  void SetGlobalStep(int64_t step);
  // Whether steps() are those that SetGlobalStep has told, here or before the checkpoint that was restored.
  bool counts_global_steps() const { return counts_global_steps_; }
  // Per row in use, where the options need them: see RowUsage.
  bool has_frequency() const { return usage_.frequency.has_value(); }
  bool has_last_step() const { return usage_.last_step.has_value(); }
  bool has_last_used() const { return usage_.last_used.has_value(); }
  int64_t frequency(int64_t row) const { return (*usage_.frequency)[row]; }
  int64_t last_step(int64_t row) const { return (*usage_.last_step)[row]; }
  int64_t last_used(int64_t row) const { return (*usage_.last_used)[row]; }
  void set_frequency(int64_t row, int64_t value);
  void set_last_step(int64_t row, int64_t value) { (*usage_.last_step)[row] = value; }
  void set_last_used(int64_t row, int64_t value);
  // What admission keeps of ids without rows; null where the table has none of that kind.
  WaitingIds* waiting() { return admission_.waiting(); }
  const WaitingIds* waiting() const { return admission_.waiting(); }
  BloomCounters* bloom() { return admission_.bloom(); }
  const BloomCounters* bloom() const { return admission_.bloom(); }

  // Changes of rows and of waiting ids since the last checkpoint of a chain; see RowChanges. A row changes
  // when it is inserted, trained, counted, assigned or brought up to date, not when it is written to through
  // a pointer. ResourceExhausted where memory does not suffice to keep track.
  Status TrackChanges();
  bool tracks_changes() const { return changes_.tracks(); }
  bool changed(int64_t row) const { return changes_.changed(row); }
  std::vector<int64_t> erased_keys() const { return changes_.erased(); }
  void BeginSave();
  void EndSave(bool ok);
  ChainEnd& chain_end() { return chain_end_; }
  const ChainEnd& chain_end() const { return chain_end_; }

  // The optimizer's name, "" before the first step.
  std::string optimizer_name() const { return optimizer_ == nullptr ? "" : optimizer_->name(); }
  // Null before the first step.
  const Optimizer* optimizer() const { return optimizer_.get(); }
  Optimizer* mutable_optimizer() { return optimizer_.get(); }
  // Floats of optimizer slots per row, 0 before the first step.
  int64_t slot_width() const;
  // The slots of a row, slot_width() floats.
  const float* slots(int64_t row) const { return store_.weights(row) + options_.dim; }
  float* slots(int64_t row) { return store_.weights(row) + options_.dim; }
  // The optimizer's state beside the rows; "" without an optimizer. All rows are brought up to date first.
  std::string SerializeOptimizer(Executor& executor);
  // Brings all rows up to date and forgets what that took: training continues as it does in a table that is
  // restored from these rows, bit for bit.
  void SettleOptimizer(Executor& executor);
  // Gives a table without optimizer the one of `name` with the state that SerializeOptimizer returned.
  // `hyper` are its hyper-parameters at the first step, which say what new rows' slots start from.
  Status RestoreOptimizer(std::string_view name, Span<const float> hyper, std::string_view state);
  // The hyper-parameters of the first step; empty without an optimizer.
  Span<const float> first_hyper() const { return first_hyper_; }

 private:
  explicit Table(TableOptions options);

  // Makes room for so many keys more; ReserveRecords for what is kept of rows [0, rows).
  Status Reserve(int64_t new_keys);
  Status ReserveRecords(int64_t rows);
  Status CheckCapacity(int64_t new_keys) const;
  // The same for a lookup with `rows`: takes out rows of others where the options say so.
  Status MakeRoom(Span<const int64_t> rows, int64_t new_keys);
  // Gives distinct ids that are not there rows, rows[i] of ids[i], with their initial values.
  Status Insert(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows);
  // The same for ids that stand at positions[i] of a lookup with `rows`.
  Status InsertAt(Executor& executor, Span<const int64_t> ids, Span<const int64_t> positions,
                  Span<int64_t> rows);
  // The same for those of the ids that are admitted; the others are counted.
  Status InsertAdmitted(Executor& executor, Span<const int64_t> ids, Span<const int64_t> counts,
                        Span<const int64_t> positions, Span<int64_t> rows);
  void CountUses(Span<const int64_t> rows, Span<const int64_t> counts);
  // Takes out rows in use; cannot fail once PrepareErase made room for as many.
  Status EraseRows(Span<const int64_t> rows);
  Status PrepareErase(int64_t rows);
  // Takes out rows in use, and ids that may wait for admission.
  Status EraseWith(Span<const int64_t> rows, Span<const int64_t> waiting_ids);
  // What EvictForSave takes out: of GlobalStepEvict, and of L2WeightEvict.
  void FindUnused(std::vector<int64_t>* rows, std::vector<int64_t>* waiting_ids) const;
  void FindSmall(Executor& executor, std::vector<int64_t>* rows);
  // The number of the step that is being taken.
  int64_t CountStep();
  // Moves steps() and the last steps of rows and waiting ids.
  void MoveSteps(int64_t by);
  Status FillDirectRows(Executor& executor);
  Status AttachOptimizer(std::string_view name, Span<const float> hyper);
  // Sums the gradients of rows that repeat, and takes the step.
  Status TakeSummedStep(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                        const float* grads);
  Status TakeStep(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                  const RowGradients& gradients);
  void MarkChanged(Span<const int64_t> rows);
  // An error from below, with the variable's name in front.
  Status Named(const Status& status) const;

  const TableOptions options_;
  const uint64_t definition_fingerprint_;
  const StaticRows static_rows_;  // none with hashing
  mutable std::mutex mutex_;
  RowDirectory directory_;  // unused without hashing
  RowStore store_;
  RowUsage usage_;
  AdmissionFilter admission_;
  EvictionQueue queue_;  // unused unless on_full evicts
  RowChanges changes_;
  ChainEnd chain_end_;
  const std::shared_ptr<LookupCounts> lookup_counts_ = std::make_shared<LookupCounts>();
  int64_t steps_ = 0;
  int64_t uses_ = 0;
  std::optional<int64_t> global_step_;  // as told since the table was made
  bool counts_global_steps_ = false;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> first_hyper_;
  Deduplicator deduplicator_;  // of gradients whose rows repeat
};

}  // namespace sok

#endif  // SOK_CC_TABLE_TABLE_H_
