// How checkpoints, exports and raw files access a table: they read and write its rows in pieces, in host
// memory, and its other state.
#ifndef SOK_CC_ENGINE_HELD_TABLE_H_
#define SOK_CC_ENGINE_HELD_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/optimizers/rule_info.h"
#include "cc/table/bloom_filter.h"
#include "cc/table/row_changes.h"
#include "cc/table/table_options.h"

namespace sok {

// The parts of a row to read or write, besides its key and weights.
struct RowParts {
  bool slots = false;         // of the optimizer
  bool frequency = false;     // occurrences in training lookups
  bool last_step = false;     // the table's step at the row's last update
  bool last_used = false;     // the table's uses at the row's last training lookup
  bool last_current = false;  // the optimizer's step at which weights and slots were last current
};

// Rows in host memory, valid during the call that receives them. Element i of each column belongs to row i of
// the piece. Columns of parts that were not requested are empty.
struct RowPiece {
  Span<const int64_t> numbers;  // row numbers
  Span<const int64_t> keys;
  Span<const float* const> records;  // `dim` weights, then the slots
  Span<const int64_t> frequency;
  Span<const int64_t> last_step;
  Span<const int64_t> last_used;
  Span<const int64_t> last_current;
};

// The same, for the receiver to write.
struct RowsToFill {
  Span<float* const> records;
  Span<int64_t> frequency;
  Span<int64_t> last_step;
  Span<int64_t> last_used;
  Span<int64_t> last_current;
};

// Ids that wait for admission, and their statistics.
struct WaitingPiece {
  Span<const int64_t> ids;
  Span<const int64_t> counts;      // occurrences so far
  Span<const int64_t> last_steps;  // the table's step at the last occurrence
};

// All rows of a table, or those that changed since the checkpoint of HeldState::chain_end.
enum class RowSet { kAll, kChanged };

struct RowsToRead {
  RowSet set = RowSet::kAll;
  RowParts parts = {};
  bool up_to_date = false;    // first apply the steps that the optimizer has postponed
  int64_t limit = INT64_MAX;  // read at most this number of rows
};

// A table's steps and uses; see Table::SetClock.
struct TableClock {
  int64_t steps = 0;
  int64_t uses = 0;
  bool counts_global_steps = false;
};

// The optimizer of a table.
struct HeldOptimizer {
  std::string name;  // as for MakeOptimizer
  int64_t steps = 0;
  std::vector<float> first_hyper;  // hyper-parameters of the first step; some are initial values of slots
};

struct HeldState {
  int64_t rows = 0;  // in use
  TableClock clock;
  RowParts parts;  // those that the table has; last_current if the optimizer has can_save_lag()
  bool tracks_changes = false;
  ChainEnd chain_end;
  std::optional<HeldOptimizer> optimizer;  // none before the first step
};

// Exclusive access to a table: from EngineTable::Hold until this object is destroyed, no other call reads or
// changes the table. Work runs on the context that Hold received.
//
// All arguments are in host memory. Calls move rows in pieces, so an engine's extra memory does not grow with
// the table.
//
// Any call that returns a Status may fail with errors of the engine's memory and transfers, which need not
// name the variable. Nothing is thrown. Not thread-safe.
class HeldTable {
 public:
  virtual ~HeldTable() = default;

  virtual const TableOptions& options() const = 0;
  virtual HeldState state() const = 0;

  // --- Reading rows ---

  virtual StatusOr<int64_t> CountRows(RowSet set) = 0;
  // Calls visit(piece) on pieces of the rows, in order of row number, until the first error of a visit. The
  // table must have the requested parts.
  virtual Status ReadRows(const RowsToRead& what, FunctionRef<Status(const RowPiece& piece)> visit) = 0;
  // The keys erased since the checkpoint of chain_end, each once, increasing. See RowChanges::erased.
  virtual Status ErasedKeys(std::vector<int64_t>* keys) = 0;

  // --- Writing rows ---

  // Gives the next `rows` keys that FillRows inserts, into a table without rows and optimizer, the weights of
  // an array float32 [rows, dim], row after row; their `fill` need not write weights. place(at, to, bytes) is
  // called for pieces of the array: it writes bytes [at, at + bytes) to `to`, or maps a file over whole
  // pages. False, without a call of `place`, if the engine or the table cannot do this. After an error the
  // table must not be used.
  virtual StatusOr<bool> PlaceRows(int64_t /*rows*/,
                                   FunctionRef<Status(int64_t at, char* to, int64_t bytes)> /*place*/) {
    return false;
  }
  // Makes room for about this number of rows more, so that FillRows need not do so piece by piece.
  virtual Status MakeRoom(int64_t /*rows*/) { return OkStatus(); }
  // The maximum number of keys in a call of FillRows.
  virtual int64_t max_rows_to_fill() const = 0;
  // Inserts the absent ones of `keys`, without admission, counting or eviction. Keys are distinct and owned
  // by this rank. Then calls fill(rows), which must write the weights and the given parts of all of `keys`;
  // element i belongs to keys[i]. After an error of `fill` the values of these rows are undefined.
  // ResourceExhausted if the capacity or memory is exhausted; then nothing was inserted.
  virtual Status FillRows(Span<const int64_t> keys, const RowParts& parts,
                          FunctionRef<Status(const RowsToFill& rows)> fill) = 0;
  // Erases keys, also those that wait for admission; skips absent keys.
  virtual Status Erase(Span<const int64_t> keys) = 0;

  // --- Admission's data on ids without rows ---

  // As CountRows, ReadRows and ErasedKeys, for tables with Admission::Kind::kCounter.
  virtual StatusOr<int64_t> CountWaiting(RowSet set) = 0;
  virtual Status ReadWaiting(RowSet set, FunctionRef<Status(const WaitingPiece& piece)> visit) = 0;
  virtual Status ErasedWaiting(std::vector<int64_t>* ids) = 0;
  // Sets the counts and last steps of ids. With Admission::Kind::kBloom raises their counters to these
  // counts.
  virtual Status SetWaiting(const WaitingPiece& piece) = 0;
  virtual Status EraseWaiting(Span<const int64_t> ids) = 0;
  // The counters of Admission::Kind::kBloom: see BloomCounters::ForEachNonZeroBlock and MergeMax.
  virtual Status ReadBloom(VisitBlocks visit) = 0;
  virtual Status MergeBloom(Span<const int64_t> blocks, Span<const char> bytes) = 0;

  // --- The optimizer and the clock ---

  // Brings all rows up to date and drops the history of past steps. Training continues bit for bit as in a
  // table that is restored from these rows.
  virtual Status SettleOptimizer() = 0;
  // The steps that rows may have missed, for an optimizer with can_save_lag().
  virtual Status ReadPastSteps(PastSteps* past) = 0;
  // Attaches the optimizer to a table that has none. Rows count as current at optimizer.steps.
  virtual Status RestoreOptimizer(const HeldOptimizer& optimizer) = 0;
  // See Optimizer::RestorePastSteps.
  virtual Status RestorePastSteps(const PastSteps& past) = 0;
  virtual Status RestoreClock(const TableClock& clock) = 0;

  // --- Saving ---

  // Evicts the rows, and the ids that wait for admission, that options().eviction removes when a checkpoint
  // is written.
  virtual Status EvictForSave() = 0;
  // Starts to track changes. A second call changes nothing.
  virtual Status TrackChanges() = 0;
  // Marks the changes so far as being written; see RowChanges.
  virtual Status BeginSave() = 0;
  // If `ok`, the changes were written, and later changes count from the checkpoint `end`. Otherwise `end` is
  // empty: there is no checkpoint to count changes from.
  virtual void EndSave(bool ok, ChainEnd end) = 0;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_HELD_TABLE_H_
