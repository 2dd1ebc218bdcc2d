// The rows of one embedding variable on the device.
#ifndef SOK_CUDA_TABLE_DEVICE_TABLE_H_
#define SOK_CUDA_TABLE_DEVICE_TABLE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/engine/engine_table.h"
#include "cc/placement/key_owners.h"
#include "cc/table/row_changes.h"
#include "cc/table/table_options.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/event.h"
#include "cuda/base/transfers.h"
#include "cuda/index/key_index_view.h"
#include "cuda/store/device_row_store.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/device_tiers.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/admit_ids.h"
#include "cuda/table/device_bloom.h"
#include "cuda/table/device_row_changes.h"
#include "cuda/table/device_waiting.h"
#include "cuda/table/directory_rows.h"
#include "cuda/table/key_directory.h"
#include "cuda/training/device_optimizer.h"

namespace sok {

// Finds the rows of a group's ids.

// The row of a key that another rank holds.
constexpr int64_t kForeignRow = -2;

// How a table finds a key's row: in its index, or without hashing by arithmetic on the key.
struct RowFinder {
  bool is_static = false;
  KeyIndexView index;
  StaticRows static_rows;
  // Whether there may be keys that `rank` does not hold, which get kForeignRow. The boundaries are on the
  // device.
  bool may_be_foreign = false;
  KeyOwners owners;
  int rank = 0;
};

// rows[u] = the row of id u, or kAbsentRow. A key that has no row in a table without hashing is an error:
// *first_unknown becomes the minimum of its value and the number of that id. finders[ids.tables] and the
// other arrays are on the device. any_absent[t] becomes 1 if an id of table t is absent; it may be null.
Status FindRows(cudaStream_t stream, const IdsOfGroup& ids, const RowFinder* finders, int64_t* rows,
                uint64_t* first_unknown, int64_t* any_absent);

// Work on one object that calls enqueue on streams of their own choice: each call's work comes after that of
// the call before. One call at a time. Not copyable.
//
// Nearly all calls use one stream, which takes no event: only a call on another stream records one, in the
// stream of the call before. So a stream must live until the next Enter, or longer than this object.
class StreamOrder {
 public:
  // Orders later work on the stream after the work of the last call.
  Status Enter(cudaStream_t stream) {
    if (!last_stream_.has_value() || *last_stream_ == stream) return OkStatus();
    SOK_RETURN_IF_ERROR(last_work_.Record(*last_stream_));
    return last_work_.OrderBefore(stream);
  }

  // Must be called when the call has enqueued its work on the stream.
  void Leave(cudaStream_t stream) { last_stream_ = stream; }

  // Waits until the work of all calls is done. Device errors are reported elsewhere.
  void Wait() const {
    if (last_stream_.has_value() && cudaStreamSynchronize(*last_stream_) != cudaSuccess) cudaGetLastError();
  }

  // The stream of the last call.
  cudaStream_t last_stream() const { return last_stream_.value_or(nullptr); }

 private:
  Event last_work_;
  std::optional<cudaStream_t> last_stream_;
};

// Where a table's memory comes from. Both outlive the table.
struct TableMemory {
  DeviceAllocator* device = nullptr;
  DeviceAllocator* rows = nullptr;               // of records: `device`, or host memory, as with tiers
  int64_t slab_bytes = DeviceSlabs::kSlabBytes;  // of records
};

// The use of a table's rows, like RowUsage (cc/cpu/table/row_directory.h); a column exists if the options
// need it.
struct DeviceUsage {
  DeviceUsage(const TableOptions& options, DeviceAllocator* allocator);
  Status Reserve(cudaStream_t stream, int64_t rows);
  int64_t bytes() const;

  using Column = std::optional<DeviceColumn<int64_t>>;
  Column frequency;
  Column last_step;
  Column last_used;
};

// The keys, rows, use, changes and clocks of a table: see Table (cc/cpu/table/table.h), the CPU's, for their
// meaning. Row numbers, references and error messages are the same. The optimizer's arithmetic is elsewhere.
//
// Arrays are on the device. A call enqueues its work on a stream; `Waits` in a comment says that it also
// waits for the device.
//
// With a disk (TierOptions), kernels may use only records of rows that were brought up since Enter, or since
// the last BeginPiece.
//
// Thread safety: the caller holds mutex() around calls, and has called Enter for the stream first and Leave
// last, which orders the work of several streams; StreamOrder says how long a stream must live.
class DeviceTable {
 public:
  // Checks the options. A table without hashing gets all its rows at once, with their initial values.
  static StatusOr<std::unique_ptr<DeviceTable>> Create(cudaStream_t stream, const TableMemory& memory,
                                                       TableOptions options);

  // Waits for the work on the table before its memory is freed.
  ~DeviceTable() { order_.Wait(); }

  Mutex& mutex() const { return mutex_; }
  // The executor's threads, or the caller's alone if it is null, read and write the table's disk until Leave.
  Status Enter(cudaStream_t stream, Executor* executor) {
    if (store_.disk() != nullptr) {
      store_.disk()->set_executor(executor);
      store_.disk()->BeginCall();
    }
    return Named(order_.Enter(stream));
  }
  void Leave(cudaStream_t stream) { order_.Leave(stream); }

  // A number that no other table of the process has.
  uint64_t serial() const { return serial_; }
  const TableOptions& options() const { return options_; }
  uint64_t definition_fingerprint() const { return definition_fingerprint_; }
  // For kernels: of options(), with given rows in device memory. Valid while the table lives.
  Initializer initializer() const {
    Initializer initializer = options_.initializer;
    if (initializer.kind == InitializerKind::kGiven) initializer.given = initial_rows_.data();
    return initializer;
  }
  int64_t size() const { return options_.use_hashtable ? directory_.size() : static_rows_.count; }
  int64_t row_limit() const { return options_.use_hashtable ? directory_.row_limit() : static_rows_.count; }
  int64_t bytes() const;
  // What the tiers hold, and did. Zeros without tiers. Otherwise waits, for the work of the last call.
  StatusOr<TierCounts> FetchTierCounts();
  bool represents_rows() const { return options_.placement.represents(options_.rank); }
  bool counts_lookups() const { return usage_.frequency.has_value(); }
  bool has_admission() const { return options_.admission.kind != Admission::Kind::kNone; }
  // `status` with the variable's name in front of its message.
  Status Named(const Status& status) const;
  template <typename T>
  StatusOr<T> Named(StatusOr<T> made) const {
    if (made.ok()) return made;
    return Named(made.status());
  }

  // --- For kernels, until the table next makes room ---

  RowFinder finder() const {
    RowFinder finder;
    finder.is_static = !options_.use_hashtable;
    finder.index = directory_.view().index;
    finder.static_rows = static_rows_;
    return finder;
  }
  // As it will be once `erased` more rows are erased.
  RowSource source(int64_t erased = 0) const {
    RowSource source = SourceOf(directory_);
    source.num_free += erased;
    return source;
  }
  RowStoreView rows() const { return store_.view(); }
  // Null if all rows are in one memory.
  DeviceTiers* tiers() const { return store_.tiers(); }
  // Null without a disk below memory.
  TierDisk* disk() const { return store_.disk(); }
  // Of stochastic rounding.
  uint64_t rounding_seed() const { return store_.layout().format().seed; }
  // Null if references are row numbers.
  ColumnView<uint32_t> states() const {
    return directory_.has_erased() ? directory_.view().states : ColumnView<uint32_t>();
  }
  const KeyDirectory& directory() const { return directory_; }
  DeviceUsage& usage() { return usage_; }
  const DeviceUsage& usage() const { return usage_; }
  DeviceRowChanges& changes() { return changes_; }
  const StaticRows& static_rows() const { return static_rows_; }

  // --- The disk, if there is one: otherwise these do nothing ---

  // sok::BringFromDisk for this table only.
  Status BringFromDisk(cudaStream_t stream, DeviceAllocator* scratch, const RowList& rows, DiskUse use,
                       int64_t spare = 0);
  // How many of the rows of `new_keys` new keys may have no place in memory, before the table changes.
  int64_t SpareFor(int64_t new_keys) const {
    return disk() == nullptr ? 0 : tiers()->SpareFor(new_keys, directory_.RowLimitWith(new_keys));
  }
  // Rows that were brought up before may go down.
  void BeginPiece() {
    if (disk() != nullptr) disk()->BeginCall();
  }
  // At most `rows`, or fewer: how many to bring up at once.
  int64_t PieceOf(int64_t rows) const { return store_.PieceOf(rows); }
  // Whether rows that were in memory when the disk had this version may not be now.
  bool MayBeOnDisk(int64_t disk_version) const {
    return disk() != nullptr && disk()->version() != disk_version;
  }

  // --- Rows for new keys ---

  // ResourceExhausted if the capacity is too small for more keys.
  Status CheckCapacity(int64_t new_keys) const;
  // The same for a lookup that finds `present` other rows, if a full table evicts rows.
  Status CheckRoom(int64_t new_keys, int64_t present) const;
  // The number of rows to evict for that; 0 unless the table evicts.
  int64_t SurplusOf(int64_t new_keys) const;
  // The error for a key that has no row in a table without hashing.
  Status NoRowFor(int64_t key) const;
  // Makes room for `new_keys` more keys. ResourceExhausted if memory runs out; what has grown by then stays
  // larger, for the next call.
  Status Reserve(cudaStream_t stream, int64_t new_keys);
  // The same for keys that come in several calls, which then reserve nothing ahead.
  Status MakeRoom(cudaStream_t stream, int64_t new_keys);
  // Updates everything else that the table keeps by row, once keys[n] have rows[n] and their records are
  // started (StartRows). Needs a Reserve.
  Status StartUse(cudaStream_t stream, const int64_t* rows, int64_t n);
  // A training lookup has found or made rows[n], of ids that occur counts[n] times; negative rows are
  // skipped. `counts` may be null unless counts_lookups().
  Status CountUses(cudaStream_t stream, const int64_t* rows, const int32_t* counts, int64_t n);
  // The rows of keys[n], which are distinct; none is on disk then. Absent ones are inserted as for loading:
  // without admission, counting or eviction. rows[i] is kForeignRow for keys that other ranks hold, if `own`
  // says to skip those. Errors as for Table::FindOrMake, and of the disk; then no key was inserted. Waits.
  Status FindOrMake(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* keys, int64_t n, bool own,
                    int64_t* rows);

  // --- Erasing rows ---

  // Table::Erase: of keys[n]. Waits.
  Status Erase(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* keys, int64_t n,
               int64_t* erased);
  // Makes room to erase `n` rows. ResourceExhausted if memory runs out.
  Status ReserveErase(cudaStream_t stream, int64_t n);
  // Erases rows[n], distinct and in use, in their order. keys[n] is scratch. Needs a ReserveErase, and no
  // other memory.
  Status EraseRowsOf(cudaStream_t stream, int64_t* rows, int64_t n, int64_t* keys);
  // The number of rows erased so far. While it does not change, all references stay current.
  int64_t num_erased() const { return num_erased_; }

  // --- The optimizer ---

  // Null before the first step.
  const DeviceOptimizer* optimizer() const { return optimizer_.get(); }
  DeviceOptimizer* optimizer() { return optimizer_.get(); }
  // The hyper-parameters of the first step; empty without an optimizer.
  Span<const float> first_hyper() const { return first_hyper_; }
  // The error of a step by this optimizer, if any. Changes nothing.
  Status CheckStep(std::string_view optimizer, Span<const float> hyper) const;
  // The error for a reference to a row that the table never had; `row` is that row.
  Status NoRowNumber(int64_t row) const;
  // Attaches the optimizer to a table that has none. CheckStep has passed.
  Status AttachOptimizer(cudaStream_t stream, std::string_view name, Span<const float> hyper);
  // Makes rows, which are distinct, current if the optimizer postpones the steps of untouched rows.
  Status BringUpToDate(cudaStream_t stream, const RowList& rows);
  // Call it before a step with these hyper-parameters: with a disk, EnqueueSteps must not catch up all rows.
  Status PrepareStep(cudaStream_t stream, Span<const float> hyper);
  bool is_up_to_date() const { return optimizer_ == nullptr || !optimizer_->has_catch_up(); }
  // Call it after a step with gradients of these rows (below 0: none) has been enqueued.
  Status FinishStep(cudaStream_t stream, const int64_t* rows, int64_t n);

  // --- Admission ---

  // Null if the filter is of another kind.
  DeviceWaiting* waiting() { return waiting_.has_value() ? &*waiting_ : nullptr; }
  DeviceBloom* bloom() { return bloom_.has_value() ? &*bloom_ : nullptr; }
  FilterView filter() const;

  // --- Clocks: see Table ---

  int64_t steps() const { return steps_; }
  int64_t uses() const { return uses_; }
  bool counts_global_steps() const { return counts_global_steps_; }
  void SetClock(int64_t steps, int64_t uses, bool of_graph);
  // Needs no Enter: uses the stream of the last call.
  Status SetGlobalStep(int64_t step);
  // The number of the step that is being taken.
  int64_t CountStep();

  // --- Statistics and saves ---

  const std::shared_ptr<LookupCounts>& lookup_counts() const { return lookup_counts_; }
  // Starts to count changes.
  Status TrackChanges(cudaStream_t stream);
  ChainEnd& chain_end() { return chain_end_; }

  // For calls on this table only.
  StagedUpload& upload() { return upload_; }
  RoundTrip& round_trip() { return round_trip_; }

 private:
  DeviceTable(const TableMemory& memory, TableOptions options);

  Status ReserveRecords(cudaStream_t stream, int64_t rows);
  Status UploadInitialRows(cudaStream_t stream);
  Status FillStaticRows(cudaStream_t stream);
  Status MoveSteps(cudaStream_t stream, int64_t by);
  // Whether the optimizer suits the records and takes these hyper-parameters.
  Status CheckOptimizer(const DeviceOptimizer& optimizer, Span<const float> hyper) const;
  // Finds the ids of one table; those of other ranks get kForeignRow if `own`.
  Status FindOwn(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, bool own,
                 int64_t* rows, uint64_t* first_unknown);
  Status KeyWithoutRow(cudaStream_t stream, const int64_t* keys, uint64_t position);

  const uint64_t serial_;
  const TableOptions options_;
  const uint64_t definition_fingerprint_;
  const StaticRows static_rows_;  // none with hashing
  mutable Mutex mutex_;
  StreamOrder order_;
  StagedUpload upload_;
  RoundTrip round_trip_;
  DeviceAllocator* device_;
  DeviceBuffer<float> initial_rows_;  // a copy of options_.initial_rows
  KeyDirectory directory_;            // unused without hashing
  DeviceRowStore store_;
  int64_t made_room_ = 0;  // rows that MakeRoom has reserved
  DeviceUsage usage_;
  std::optional<DeviceWaiting> waiting_;
  std::optional<DeviceBloom> bloom_;
  DeviceRowChanges changes_;
  ChainEnd chain_end_;
  int64_t num_erased_ = 0;
  std::unique_ptr<DeviceOptimizer> optimizer_;
  std::vector<float> first_hyper_;
  const std::shared_ptr<LookupCounts> lookup_counts_ = std::make_shared<LookupCounts>();
  int64_t steps_ = 0;
  int64_t uses_ = 0;
  bool has_global_step_ = false;
  bool counts_global_steps_ = false;
};

// BringFromDisk of DeviceTiers: rows[i] and spare[i] of tables[i]; `spare` may be empty. The error names the
// variable.
Status BringFromDisk(cudaStream_t stream, DeviceAllocator* scratch, Span<DeviceTable* const> tables,
                     Span<const RowList> rows, Span<const int64_t> spare, DiskUse use);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_DEVICE_TABLE_H_
