#include "cc/cpu/table/table.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "cc/base/status.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

StaticRows StaticRowsOf(const TableOptions& options) {
  if (options.use_hashtable || options.rank == kNoRank) return {};
  return options.placement.RowsOn(options.rank, options.ranks, options.capacity);
}

// Expected cost of looking up an id, and of making one float of an initial row.
constexpr int64_t kFindNs = 25;
constexpr int64_t kInitialValueNs = 4;

// InvalidArgument for the first key that repeats an earlier one.
Status CheckDistinct(Executor& executor, const TableOptions& options, Span<const int64_t> keys) {
  if (keys.size() > std::numeric_limits<int32_t>::max()) return TooManyKeys(options, keys.size());
  Deduplicator deduplicator;
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse(keys.size());
  SOK_RETURN_IF_ERROR(deduplicator.Run(executor, keys, &unique, Span<int32_t>(inverse)));
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (inverse[i] != i) return KeyToAssignOccursTwice(options, keys[i]);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Table>> Table::Create(Executor& executor, TableOptions options, Engine* engine) {
  SOK_RETURN_IF_ERROR(CheckOptions(options));
  SOK_RETURN_IF_ERROR(CheckGivenRows(options));
  if (options.tiers.has_tiers() && (!options.tiers.has_disk() || options.tiers.host_bytes > 0)) {
    return NamedError(options, InvalidArgument(options.tiers.has_disk() ? "HBM_DRAM_SSDHASH" : "HBM_DRAM",
                                               " is for tables on a GPU, and this one is on a CPU"));
  }
  std::unique_ptr<Table> table(new Table(engine, std::move(options)));
  if (table->options_.rank == kNoRank) return table;
  SOK_RETURN_IF_ERROR(table->Named(table->admission_.Init(table->options_.admission)));
  if (table->options_.tiers.has_disk()) {
    SOK_RETURN_IF_ERROR(table->Named(table->store_.AddDisk(table->options_.tiers)));
  }
  SOK_RETURN_IF_ERROR(table->FillDirectRows(executor));
  return table;
}

Table::Table(Engine* engine, TableOptions options)
    : EngineTable(engine),
      options_(std::move(options)),
      definition_fingerprint_(DefinitionFingerprint(options_)),
      static_rows_(StaticRowsOf(options_)),
      store_(options_.dim, RecordFormatOf(options_)),
      usage_(options_),
      queue_(options_.on_full == OnFull::kEvictLfu) {}

TableDescription Table::Describe() const {
  const MutexLock lock(mutex_);
  const TierCounts tiers = store_.tiers() == nullptr ? TierCounts() : store_.tiers()->counts();
  return {size(), bytes(), steps_, optimizer_name(), tiers};
}

int64_t Table::bytes() const {
  return store_.bytes() + directory_.bytes() + usage_.bytes() + admission_.bytes();
}

void Table::ForEachPiece(FunctionRef<void(Span<const int64_t>)> visit) const {
  const int64_t most = PieceOf(1 << 16);
  std::vector<int64_t> rows;
  for (int64_t first = 0; first < row_limit(); first += most) {
    rows.clear();
    const int64_t end = std::min(first + most, row_limit());
    for (int64_t row = first; row < end; ++row) {
      if (in_use(row)) rows.push_back(row);
    }
    visit(rows);
  }
}

Status Table::ForEachPieceUpToDate(Executor& executor, FunctionRef<void(Span<const int64_t>)> visit) {
  Status status;
  ForEachPiece([&](Span<const int64_t> rows) {
    if (!status.ok()) return;
    BeginCall();
    status = BringUpToDate(executor, rows, RowUse::kScan);
    if (status.ok()) visit(rows);
  });
  return status;
}

std::vector<int64_t> Table::Rows() const {
  std::vector<int64_t> rows;
  rows.reserve(size());
  ForEachPiece([&](Span<const int64_t> piece) { rows.insert(rows.end(), piece.begin(), piece.end()); });
  return rows;
}

std::vector<int64_t> Table::Keys() const {
  std::vector<int64_t> keys = Rows();
  for (int64_t& row_to_key : keys) row_to_key = key(row_to_key);
  return keys;
}

Status Table::Find(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows) const {
  if (options_.use_hashtable) {
    executor.ParallelFor(rows.size(), kFindNs, [&](int64_t begin, int64_t end) {
      directory_.Find(ids.subspan(begin, ids.size() - begin), rows.subspan(begin, end - begin));
    });
    return OkStatus();
  }
  const StaticRows static_rows = static_rows_;
  for (int64_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_rows.RowOf(ids[i]);
    if (rows[i] < 0) return NoRowForKey(options_, ids[i]);
  }
  return OkStatus();
}

Status Table::CheckCapacity(int64_t new_keys) const {
  if (options_.capacity == 0 || size() + new_keys <= options_.capacity) return OkStatus();
  return TableIsFull(options_, size(), new_keys);
}

void Table::StartRow(int64_t row, int64_t key, InitialValues values, float* floats) {
  if (values == InitialValues::kAll) {
    float* const weights = layout().is_plain() ? store_.weights(row) : floats;
    InitialRow(key, Span<float>(weights, options_.dim));
    if (!layout().is_plain()) layout().WriteWeights(weights, store_.record(row));
  }
  if (values != InitialValues::kNone) store_.FillSlots(row);
  store_.SetKey(row, key);
}

Status Table::Insert(Executor& executor, Span<const int64_t> ids, Span<int64_t> rows, InitialValues values) {
  SOK_RETURN_IF_ERROR(Reserve(ids.size()));
  directory_.NextRows(rows);
  SOK_RETURN_IF_ERROR(StartRows(executor, ids, rows, values));
  usage_.Start(rows, steps_, uses_);
  queue_.Add(directory_, usage_, rows);
  if (optimizer_ != nullptr) {
    for (int64_t row : rows) optimizer_->OnNewRow(row);
  }
  MarkChanged(rows);
  return OkStatus();
}

Status Table::StartRows(Executor& executor, Span<const int64_t> ids, Span<const int64_t> rows,
                        InitialValues values) {
  SOK_RETURN_IF_ERROR(BringUp(executor, rows, RowUse::kNew));
  if (values == InitialValues::kNone && layout().is_plain()) return Named(directory_.Insert(ids, rows));
  RecordScratch scratch(layout().is_plain() ? 0 : options_.dim);
  constexpr int64_t kBlock = 1024;
  Status status;
  std::atomic<bool> inserting{false};
  std::atomic<int64_t> next{0};
  // One thread inserts into the index, which takes about as long as the initial values of rows of 16, while
  // the others write these. Then it helps them.
  const auto work = [&](int64_t /*begin*/, int64_t /*end*/, float* floats) {
    if (!inserting.exchange(true)) status = Named(directory_.Insert(ids, rows));
    for (int64_t first = kBlock * next++; first < ids.size(); first = kBlock * next++) {
      for (int64_t i = first; i < std::min(first + kBlock, ids.size()); ++i) {
        StartRow(rows[i], ids[i], values, floats);
      }
    }
  };
  const int64_t threads = executor.concurrency();
  const int64_t ns = ids.size() * (kFindNs + kInitialValueNs * options_.dim);
  scratch.ForRanges(executor, threads, ns / threads, work);
  return status;
}

Status Table::Reserve(int64_t new_keys) {
  // Doubling keeps the number of reservations small, at most a million rows ahead and within the capacity.
  // Room that was made before is used up first.
  const int64_t rows = directory_.RowLimitWith(new_keys);
  const int64_t ahead = rows <= store_.rows() ? 0 : std::min(2 * row_limit(), rows + (int64_t{1} << 20));
  int64_t wanted = std::max(rows, ahead);
  if (options_.capacity > 0) wanted = std::min(wanted, options_.capacity);
  const int64_t keys = size() + new_keys;
  Status status =
      directory_.Reserve(options_.capacity > 0 ? std::min(keys, options_.capacity) : keys, wanted);
  if (status.ok() && options_.on_full != OnFull::kError) status = queue_.Reserve(directory_, new_keys);
  if (status.ok()) status = ReserveRecords(wanted);
  return status.ok() ? status : NoRoomFor(options_, size(), bytes(), status);
}

Status Table::PlaceRows(int64_t rows, PlaceBytes place) {
  SOK_RETURN_IF_ERROR(CheckCapacity(rows));
  SOK_RETURN_IF_ERROR(Named(store_.ReserveWith(rows, place)));
  return Reserve(rows);
}

Status Table::ReserveRecords(int64_t rows) {
  SOK_RETURN_IF_ERROR(store_.Reserve(rows));
  SOK_RETURN_IF_ERROR(usage_.Reserve(rows));
  SOK_RETURN_IF_ERROR(changes_.Reserve(rows, 0));
  return optimizer_ == nullptr ? OkStatus() : optimizer_->Reserve(rows);
}

Status Table::FillDirectRows(Executor& executor) {
  if (options_.use_hashtable) return OkStatus();
  RecordScratch scratch(layout().is_plain() ? 0 : options_.dim);
  SOK_RETURN_IF_ERROR(Named(ReserveRecords(static_rows_.count)));
  Status status;
  ForEachPiece([&](Span<const int64_t> rows) {
    if (!status.ok()) return;
    BeginCall();
    status = BringUp(executor, rows, RowUse::kNew);
    if (!status.ok()) return;
    scratch.ForRanges(executor, rows.size(), kInitialValueNs * options_.dim,
                      [&](int64_t begin, int64_t end, float* floats) {
                        for (const int64_t row : rows.subspan(begin, end - begin)) {
                          StartRow(row, static_rows_.KeyOf(row), InitialValues::kAll, floats);
                        }
                      });
  });
  return status;
}

Status Table::Assign(const EngineContext& context, Span<const int64_t> keys, const float* values) {
  return Named(WithinMemory([&] {
    SOK_RETURN_IF_ERROR(CheckDistinct(context.executor, options_, keys));
    const MutexLock lock(mutex_);
    BeginCall();
    return AssignLocked(context.executor, keys, values);
  }));
}

Status Table::AssignLocked(Executor& executor, Span<const int64_t> keys, const float* values) {
  std::vector<int64_t> own;
  std::vector<int64_t> positions;
  const KeyOwners owners = key_owners();
  for (int64_t i = 0; i < keys.size(); ++i) {
    if (!owners.Holds(options_.rank, keys[i])) continue;
    own.push_back(keys[i]);
    positions.push_back(i);
  }
  std::vector<int64_t> rows(own.size());
  SOK_RETURN_IF_ERROR(FindOrMake(executor, own, Span<int64_t>(rows), InitialValues::kSlots));
  // Takes postponed steps first: they must not change the new weights.
  SOK_RETURN_IF_ERROR(BringUpToDate(executor, rows, RowUse::kWrite));
  for (size_t i = 0; i < rows.size(); ++i) {
    layout().WriteWeights(values + positions[i] * options_.dim, store_.record(rows[i]));
  }
  MarkChanged(rows);
  return OkStatus();
}

}  // namespace sok
