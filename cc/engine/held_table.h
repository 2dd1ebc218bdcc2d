// What checkpoints, exports and raw files ask of a table: its rows in pieces, out of an engine's memory into
// the host's and back, and the state that goes with them.
#ifndef SOK_CC_ENGINE_HELD_TABLE_H_
#define SOK_CC_ENGINE_HELD_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/optimizer.h"
#include "cc/table/row_changes.h"
#include "cc/table/table_options.h"

namespace sok {

// What is read or written of a row beside its key and its weights.
struct RowParts {
  bool slots = false;         // the optimizer's
  bool frequency = false;     // occurrences in training lookups
  bool last_step = false;     // the table's step at the row's last update
  bool last_used = false;     // the table's uses at the row's last training lookup
  bool last_current = false;  // the optimizer's step at which weights and slots were last current
};

// Rows in the host's memory, valid during the call that they are passed to. Element i of each column belongs
// to row i of the piece. Columns of parts that were not asked for are empty.
struct RowPiece {
  Span<const int64_t> numbers;  // row numbers
  Span<const int64_t> keys;
  Span<const float* const> records;  // `dim` weights, then the slots
  Span<const int64_t> frequency;
  Span<const int64_t> last_step;
  Span<const int64_t> last_used;
  Span<const int64_t> last_current;
};

// The same, to be filled.
struct RowsToFill {
  Span<float* const> records;
  Span<int64_t> frequency;
  Span<int64_t> last_step;
  Span<int64_t> last_used;
  Span<int64_t> last_current;
};

// Ids that wait for admission, and what is known of them.
struct WaitingPiece {
  Span<const int64_t> ids;
  Span<const int64_t> counts;      // occurrences so far
  Span<const int64_t> last_steps;  // the table's step at the last of them
};

// All of a table, or what changed since the checkpoint of HeldState::chain_end.
enum class RowSet { kAll, kChanged };

struct RowsToRead {
  RowSet set = RowSet::kAll;
  RowParts parts = {};
  bool up_to_date = false;    // rows first take the steps that the optimizer has postponed
  int64_t limit = INT64_MAX;  // no more than the first so many
};

// What a table's steps and uses have come to; see Table::SetClock.
struct TableClock {
  int64_t steps = 0;
  int64_t uses = 0;
  bool counts_global_steps = false;
};

// The optimizer that a table is trained by.
struct HeldOptimizer {
  std::string name;  // as of MakeOptimizer
  int64_t steps = 0;
  std::vector<float> first_hyper;  // the hyper-parameters of the first step, which say what slots start from
};

struct HeldState {
  int64_t rows = 0;  // in use
  TableClock clock;
  RowParts parts;  // those that the table keeps; last_current where the optimizer can save rows that lag
  bool tracks_changes = false;
  ChainEnd chain_end;
  std::optional<HeldOptimizer> optimizer;  // none before the first step
};

// A table that one caller has for itself: from EngineTable::Hold until this goes, no other call reads or
// changes the table. Work runs on the context that Hold was given.
//
// Everything here is in the host's memory. Calls that move rows move them in pieces, so that what an engine
// needs beside the table does not grow with the table.
//
// Errors: those of the engine's memory and transfers, in any call that returns a Status; they need not name
// the variable. Nothing is thrown. Not thread-safe.
class HeldTable {
 public:
  virtual ~HeldTable() = default;

  virtual const TableOptions& options() const = 0;
  virtual HeldState state() const = 0;

  // --- Rows out ---

  virtual StatusOr<int64_t> CountRows(RowSet set) = 0;
  // Calls visit(piece) on rows in the order of their numbers; ends with the first error of a visit. The parts
  // that are asked for have to be among those kept.
  virtual Status ReadRows(const RowsToRead& what, FunctionRef<Status(const RowPiece& piece)> visit) = 0;
  // Keys that went since the checkpoint of chain_end, each once, increasing. See RowChanges::erased.
  virtual Status ErasedKeys(std::vector<int64_t>* keys) = 0;

  // --- Rows in ---

  // The most keys that a call of FillRows takes.
  virtual int64_t max_rows_to_fill() const = 0;
  // Inserts those of `keys` that are not there, without admission, counting or eviction. Keys are distinct
  // and of this rank. Then calls fill(rows), which has to write the weights and the given parts of all of
  // them, those of keys[i] at i. After an error of `fill` the values of these rows are undefined.
  // ResourceExhausted where the capacity or the memory does not suffice, and then nothing was inserted.
  virtual Status FillRows(Span<const int64_t> keys, const RowParts& parts,
                          FunctionRef<Status(const RowsToFill& rows)> fill) = 0;
  // Takes keys out, and out of those that wait; those that are not there are passed over.
  virtual Status Erase(Span<const int64_t> keys) = 0;

  // --- What admission keeps of ids without rows ---

  // As CountRows, ReadRows and ErasedKeys. Of tables with Admission::Kind::kCounter.
  virtual StatusOr<int64_t> CountWaiting(RowSet set) = 0;
  virtual Status ReadWaiting(RowSet set, FunctionRef<Status(const WaitingPiece& piece)> visit) = 0;
  virtual Status ErasedWaiting(std::vector<int64_t>* ids) = 0;
  // Sets what is known of the ids. With Admission::Kind::kBloom their counters rise to these counts instead.
  virtual Status SetWaiting(const WaitingPiece& piece) = 0;
  virtual Status EraseWaiting(Span<const int64_t> ids) = 0;
  // The counters of Admission::Kind::kBloom, piece by piece: BloomCounters::bytes.
  virtual Status ReadBloom(FunctionRef<Status(Span<const char> bytes)> visit) = 0;
  // See BloomCounters::MergeMax.
  virtual Status MergeBloom(int64_t first, Span<const char> bytes) = 0;

  // --- The optimizer and the clock ---

  // Brings all rows up to date and forgets what that took: training continues as it does in a table that is
  // restored from these rows, bit for bit.
  virtual Status SettleOptimizer() = 0;
  // The steps that rows may have missed; of an optimizer that can_save_lag().
  virtual Status ReadPastSteps(PastSteps* past) = 0;
  // Gives a table that has none its optimizer. Rows count as current at optimizer.steps.
  virtual Status RestoreOptimizer(const HeldOptimizer& optimizer) = 0;
  // See Optimizer::RestorePastSteps.
  virtual Status RestorePastSteps(const PastSteps& past) = 0;
  virtual Status RestoreClock(const TableClock& clock) = 0;

  // --- A save ---

  // Takes out what options().eviction says goes when a checkpoint is written.
  virtual Status EvictForSave() = 0;
  // Counts changes from here on. Again: changes nothing.
  virtual Status TrackChanges() = 0;
  // The changes until now are being written; see RowChanges.
  virtual Status BeginSave() = 0;
  // They were written, and changes count from the checkpoint `end`; or they were not, and there is no
  // checkpoint that they count from.
  virtual void EndSave(bool ok, ChainEnd end) = 0;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_HELD_TABLE_H_
