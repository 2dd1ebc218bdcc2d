#ifndef SOK_CC_CPU_TABLE_TABLE_H_
#define SOK_CC_CPU_TABLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/function_ref.h"
#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/store/record_scratch.h"
#include "cc/cpu/store/row_store.h"
#include "cc/cpu/table/admission_filter.h"
#include "cc/cpu/table/eviction_queue.h"
#include "cc/cpu/table/row_directory.h"
#include "cc/engine/engine_table.h"
#include "cc/placement/placement.h"
#include "cc/table/row_changes.h"
#include "cc/table/table_options.h"

namespace sok {

// The rows of one embedding variable that this rank holds: which keys have rows, the row records, how rows
// are used, and the state of the optimizer that trains them.
//
// Row numbers start at 0, in the order of insertion, and a row keeps its number while its key is in the
// table. New keys get the rows of erased keys, the last freed first, before new row numbers.
//
// Thread safety: calls of EngineTable lock the table. Around all others, and while pointers from weights()
// are in use, the caller holds mutex(). The executor's threads never take it, so holding it in ParallelFor is
// safe.
class Table final : public EngineTable {
 public:
  static constexpr int64_t kAbsent = IdIndex::kAbsent;

  // Checks the options. A table without hashing gets all its rows at once, with their initial values. A table
  // on its own, without an engine, can do all but be passed to one.
  static StatusOr<std::unique_ptr<Table>> Create(Executor& executor, TableOptions options,
                                                 Engine* engine = nullptr);

  // --- EngineTable ---
  const TableOptions& options() const override { return options_; }
  TableDescription Describe() const override;
  const LookupCounts& lookup_counts() const override { return *lookup_counts_; }
  Status ApplyGradients(const EngineContext& context, std::string_view optimizer, Span<const float> hyper,
                        Span<const int64_t> references, const float* grads, bool distinct) override;
  Status Assign(const EngineContext& context, Span<const int64_t> keys, const float* values) override;
  Status Erase(const EngineContext& context, Span<const int64_t> keys, int64_t* erased) override;
  // From the first call on, steps() are the program's. If the table has counted its own steps until now, or a
  // checkpoint's global step is ahead, last steps are shifted with steps(), so that rows keep their age, but
  // are not older than the global step. A later value below an earlier one does not change steps(). Call it
  // before EvictForSave, which compares rows with it.
  Status SetGlobalStep(int64_t step) override;
  StatusOr<std::unique_ptr<HeldTable>> Hold(const EngineContext& context) override;

  // --- With the table's mutex held ---
  Mutex& mutex() const { return mutex_; }
  // A fingerprint of Describe(options()), equal on ranks with the same table.
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
  // The rows in use and their keys, in order of row number.
  std::vector<int64_t> Rows() const;
  std::vector<int64_t> Keys() const;
  // Calls visit(rows) on pieces of the rows in use, in order of row number.
  void ForEachPiece(FunctionRef<void(Span<const int64_t> rows)> visit) const;
  // The same for pieces that are brought up to date, until the first error of that.
  Status ForEachPieceUpToDate(Executor& executor, FunctionRef<void(Span<const int64_t> rows)> visit);
  // Bytes of rows, slots, other data per row, index, and admission's counts.
  int64_t bytes() const;

  // rows[i] = the row of ids[i], or kAbsent. This rank holds the ids, which may repeat; those beyond
  // rows.size() are only prefetched, see IdIndex::Find. InvalidArgument without hashing for an id beyond the
  // keys of the placement.
  Status Find(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows) const;

  // The initial values that an insertion writes into new rows. The caller writes the others.
  enum class InitialValues { kAll, kSlots, kNone };

  // Like Find, but inserts absent ids in the order of `ids` with their initial values, without admission,
  // counting or eviction: for loading. Brings all rows up, to be written. ResourceExhausted if the capacity
  // or memory is exhausted; then nothing was inserted.
  Status FindOrMake(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows,
                    InitialValues values = InitialValues::kAll);

  // Makes room for `new_keys` more keys of a table with hashing, or as many as its capacity allows.
  Status Reserve(int64_t new_keys);

  // For a table with hashing and without rows: those that the next insertions make get the weights of an
  // array float32 [rows, dim], in order. Errors are those of FindOrMake and Slabs::ReserveWith.
  Status PlaceRows(int64_t rows, PlaceBytes place);

  // Finds or inserts the distinct ids of a training lookup, in which ids[i] occurs counts[i] >= 1 times. Like
  // FindOrMake, to be read, but ids that options().admission does not admit yet get no row (kAbsent), and a
  // full table evicts other rows as options().on_full says. Reads `counts` only if counts_lookups(). After an
  // error the table is unchanged. With admission.before_lookup, *read_default are the positions, in order, of
  // ids that have a row, but read as admission.default_value in this lookup.
  Status FindForTraining(Executor& executor, Span<const int64_t> ids, Span<const int64_t> counts,
                         Span<int64_t> rows, std::vector<int64_t>* read_default);
  bool counts_lookups() const { return has_frequency(); }
  // Whether this rank counts and saves the rows that it holds: replicas are counted and saved on rank 0 only.
  bool represents_rows() const { return options_.placement.represents(options_.rank); }
  // Tells which rank owns a key; valid as long as the table.
  KeyOwners key_owners() const { return options_.placement.owners(options_.ranks); }
  // Whether ids are counted before they have rows.
  bool has_admission() const { return options_.admission.kind != Admission::Kind::kNone; }

  // lookup_counts(): FindForTraining counts some of them, and the group's calls the others; they may outlive
  // the table. Needs no lock.
  const std::shared_ptr<LookupCounts>& shared_lookup_counts() const { return lookup_counts_; }

  // The initial values of `id`'s row, as an insertion would give it.
  void InitialRow(int64_t id, Span<float> row) const { FillRow(InitializerOf(options_), id, row); }

  // Rows that were brought up before need not stay in memory any more.
  void BeginCall() { store_.BeginCall(); }
  // Brings `rows` to memory, until the next BeginCall, if the table has a disk below it. Needed before
  // record() and weights() are used. kAbsent is no row. Errors are those of
  // RowStore::BringUp, and name the variable.
  Status BringUp(Executor& executor, Span<const int64_t> rows, RowUse use) {
    return Named(store_.BringUp(executor, rows, use));
  }
  // The same, and makes the weights of `rows` current if the optimizer postpones the steps of untouched rows.
  Status BringUpToDate(Executor& executor, Span<const int64_t> rows, RowUse use = RowUse::kRead);
  // The same for rows that were brought up.
  Status MakeCurrent(Executor& executor, Span<const int64_t> rows) {
    return has_catch_up() ? BringUpToDate(executor, rows) : OkStatus();
  }
  // Asks the disk, if there is one, for rows of ids that a lookup will need soon. Changes nothing else: in
  // memory they could displace rows of the step that runs.
  void AskAhead(Executor& executor, Span<const int64_t> ids);
  // Whether weights() may be read without BringUpToDate.
  bool is_up_to_date() const { return store_.tiers() == nullptr && !has_catch_up(); }
  // At most `rows`: how many rows to bring up at once.
  int64_t PieceOf(int64_t rows) const { return store_.PieceOf(rows); }
  // The tiers of the table's rows; null if all are in memory.
  const RowTiers* tiers() const { return store_.tiers(); }

  // The record of a row below row_limit(), as layout() describes it; its weights come first.
  const char* record(int64_t row) const { return store_.record(row); }
  const RecordLayout& layout() const { return store_.layout(); }
  // The floats of a record, and back, rounded to nearest.
  void ReadRecord(int64_t row, float* floats) const { layout().Read(record(row), floats); }
  void WriteRecord(int64_t row, const float* floats) { layout().Write(floats, store_.record(row)); }

  // The `dim` weights of a row below row_limit(), if records are floats.
  float* weights(int64_t row) { return store_.weights(row); }
  const float* weights(int64_t row) const { return store_.weights(row); }

  // Turns rows in use into references (record_layout.h), which a lookup passes to its gradient. kAbsent
  // stays. References are row numbers until the first row is freed.
  void MakeReferences(Span<int64_t> rows) const;
  // InvalidArgument if the table never had the row of a reference. Accepts kAbsent unless `lowest` is 0.
  Status CheckReferences(Span<const int64_t> references, int64_t lowest = kAbsent) const;
  // Whether the row of a reference that passes CheckReferences still belongs to its key.
  bool IsCurrent(int64_t reference) const {
    return !directory_.has_erased() || directory_.IsCurrent(reference);
  }

  // ApplyGradients for distinct rows, with gradients that are computed on demand. CheckStep must have passed.
  Status ApplyLocked(Executor& executor, std::string_view optimizer, Span<const float> hyper,
                     Span<const int64_t> references, const RowGradients& gradients);
  // The error that ApplyGradients would return for these arguments, if any. Changes nothing.
  Status CheckStep(std::string_view optimizer, Span<const float> hyper, Span<const int64_t> references) const;

  // Erase. *erased = the number of rows erased; after an error none was.
  Status EraseLocked(Executor& executor, Span<const int64_t> keys, int64_t* erased);
  // Evicts the rows, and the ids that wait for admission, that options().eviction removes when a checkpoint
  // is written. *evicted = the number of rows evicted. Errors as for Erase.
  Status EvictForSave(Executor& executor, int64_t* evicted);

  // The clocks of eviction: steps taken, which are calls of ApplyGradients or the steps that SetGlobalStep
  // sets, and training lookups.
  int64_t steps() const { return steps_; }
  int64_t uses() const { return uses_; }
  // Restores the clocks from a checkpoint; `of_graph` is its counts_global_steps().
  void SetClock(int64_t steps, int64_t uses, bool of_graph);
  // Whether steps() come from SetGlobalStep, here or before the restored checkpoint was saved.
  bool counts_global_steps() const { return counts_global_steps_; }
  // Of each row in use, if the options need them: see RowUsage.
  bool has_frequency() const { return usage_.frequency.has_value(); }
  bool has_last_step() const { return usage_.last_step.has_value(); }
  bool has_last_used() const { return usage_.last_used.has_value(); }
  int64_t frequency(int64_t row) const { return (*usage_.frequency)[row]; }
  int64_t last_step(int64_t row) const { return (*usage_.last_step)[row]; }
  int64_t last_used(int64_t row) const { return (*usage_.last_used)[row]; }
  void set_frequency(int64_t row, int64_t value);
  void set_last_step(int64_t row, int64_t value) { (*usage_.last_step)[row] = value; }
  void set_last_used(int64_t row, int64_t value);
  // Admission's data on ids without rows; null if the table's filter is of another kind.
  WaitingIds* waiting() { return admission_.waiting(); }
  const WaitingIds* waiting() const { return admission_.waiting(); }
  BloomCounters* bloom() { return admission_.bloom(); }
  const BloomCounters* bloom() const { return admission_.bloom(); }

  // Changes of rows and of waiting ids since the last checkpoint of a chain; see RowChanges. A row changes
  // when it is inserted, trained, counted, assigned or brought up to date, not when it is written to through
  // a pointer. ResourceExhausted if memory runs out.
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
  // The slots of a row, slot_width() floats, if records are floats.
  const float* slots(int64_t row) const { return store_.weights(row) + options_.dim; }
  float* slots(int64_t row) { return store_.weights(row) + options_.dim; }
  // Brings all rows up to date and drops the history of past steps: training continues bit for bit as in a
  // table that is restored from these rows.
  Status SettleOptimizer(Executor& executor);
  // Attaches the optimizer `name` to a table that has none, after as many steps. `hyper` are its
  // hyper-parameters at the first step, which determine the initial slots of new rows.
  Status RestoreOptimizer(Executor& executor, std::string_view name, Span<const float> hyper, int64_t steps);
  // The hyper-parameters of the first step; empty without an optimizer.
  Span<const float> first_hyper() const { return first_hyper_; }

 private:
  Table(Engine* engine, TableOptions options);

  Status ApplyStored(Executor& executor, std::string_view optimizer, Span<const float> hyper,
                     Span<const int64_t> references, const float* grads, bool distinct);
  Status AssignLocked(Executor& executor, Span<const int64_t> keys, const float* values);

  // Makes room for the data of the rows [0, rows).
  Status ReserveRecords(int64_t rows);
  Status CheckCapacity(int64_t new_keys) const;
  // The same for a lookup with `rows`: evicts other rows if the options say so.
  Status MakeRoom(Executor& executor, Span<const int64_t> rows, int64_t new_keys);
  // Inserts ids, which are distinct and absent, with their initial values; rows[i] = the row of ids[i].
  Status Insert(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows, InitialValues values);
  // Gives `rows`, those of RowDirectory::NextRows, to ids, and writes their initial values. Needs a Reserve.
  Status StartRows(Executor& executor, Span<const int64_t> ids, Span<const int64_t> rows,
                   InitialValues values);
  // Writes the initial values of a row. `floats` has room for its weights, if records are not floats.
  void StartRow(int64_t row, int64_t key, InitialValues values, float* floats);
  // The same as Insert for ids at positions[i] of a lookup with `rows`.
  Status InsertAt(Executor& executor, Span<const int64_t> ids, Span<const int64_t> positions,
                  Span<int64_t> rows, InitialValues values = InitialValues::kAll);
  // The same for the admitted ids; counts the others. Appends to *read_default as FindForTraining documents.
  Status InsertAdmitted(Executor& executor, Span<const int64_t> ids, Span<const int64_t> counts,
                        Span<const int64_t> positions, Span<int64_t> rows,
                        std::vector<int64_t>* read_default);
  void CountUses(Span<const int64_t> rows, Span<const int64_t> counts);
  // Erases rows in use; cannot fail after a PrepareErase for at least as many rows.
  Status EraseRows(Span<const int64_t> rows);
  Status PrepareErase(int64_t rows);
  // Erases rows in use, and ids that may wait for admission.
  Status EraseWith(Span<const int64_t> rows, Span<const int64_t> waiting_ids);
  // Finds the rows and waiting ids that EvictForSave erases: with GlobalStepEvict, and with L2WeightEvict.
  void FindUnused(std::vector<int64_t>* rows, std::vector<int64_t>* waiting_ids) const;
  Status FindSmall(Executor& executor, std::vector<int64_t>* rows);
  // The number of the step that is being taken.
  int64_t CountStep();
  // Moves steps() and the last steps of rows and waiting ids.
  void MoveSteps(int64_t by);
  Status FillDirectRows(Executor& executor);
  // InvalidArgument unless the optimizer `name` can train the table's rows with `hyper`.
  Status CheckOptimizer(const Optimizer& optimizer, Span<const float> hyper) const;
  Status AttachOptimizer(Executor& executor, std::string_view name, Span<const float> hyper);
  bool has_catch_up() const { return optimizer_ != nullptr && optimizer_->has_catch_up(); }
  // Sums the gradients of rows that repeat, and takes the step.
  Status TakeSummedStep(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                        const float* grads);
  Status TakeStep(Executor& executor, Span<const float> hyper, Span<const int64_t> rows,
                  const RowGradients& gradients);
  void MarkChanged(Span<const int64_t> rows);
  // `status` with the variable's name in front of its message.
  Status Named(const Status& status) const;

  const TableOptions options_;
  const uint64_t definition_fingerprint_;
  const StaticRows static_rows_;  // none with hashing
  mutable Mutex mutex_;
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
  bool has_global_step_ = false;  // whether SetGlobalStep was called since the table was created
  bool counts_global_steps_ = false;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> first_hyper_;
  Deduplicator deduplicator_;  // of gradients whose rows repeat
};

}  // namespace sok

#endif  // SOK_CC_CPU_TABLE_TABLE_H_
