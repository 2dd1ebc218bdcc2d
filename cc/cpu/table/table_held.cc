// The part of Table that checkpoints, exports and raw files use.
#include <algorithm>
#include <utility>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/cpu/table/table.h"
#include "cc/optimizers/rule_info.h"

namespace sok {
namespace {

// Threads synchronize once for each column of a piece, which takes long if programs compete for cores. So
// pieces are large.
constexpr int64_t kPieceRows = 32768;
// The most floats of a piece whose records are in other types, and pass as floats.
constexpr int64_t kPieceFloats = int64_t{1} << 22;

// The number of rows in a piece.
int64_t PieceRows(const Table& table) {
  if (table.layout().is_plain()) return table.PieceOf(kPieceRows);
  return table.PieceOf(std::clamp<int64_t>(kPieceFloats / table.layout().floats(), 1, kPieceRows));
}

RowParts PartsOf(const Table& table) {
  RowParts parts;
  parts.slots = table.slot_width() > 0;
  parts.frequency = table.has_frequency();
  parts.last_step = table.has_last_step();
  parts.last_used = table.has_last_used();
  parts.last_current = table.optimizer() != nullptr && table.optimizer()->can_save_lag();
  return parts;
}

// A piece of rows, with the memory of its columns.
class PieceOfRows {
 public:
  PieceOfRows(const Table& table, const RowParts& parts) : table_(table), parts_(parts) {
    rows.reserve(static_cast<size_t>(std::min(PieceRows(table), table.size())));
  }

  std::vector<int64_t> rows;

  // Reads the columns of `rows`.
  RowPiece Gather() {
    keys_.resize(rows.size());
    records_.resize(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      keys_[i] = table_.key(rows[i]);
      if (table_.layout().is_plain()) records_[i] = table_.weights(rows[i]);
    }
    if (!table_.layout().is_plain()) ReadRecords();
    GatherColumn(parts_.frequency, [&](int64_t row) { return table_.frequency(row); }, &frequency_);
    GatherColumn(parts_.last_step, [&](int64_t row) { return table_.last_step(row); }, &last_step_);
    GatherColumn(parts_.last_used, [&](int64_t row) { return table_.last_used(row); }, &last_used_);
    GatherColumn(
        parts_.last_current, [&](int64_t row) { return table_.optimizer()->last_current(row); },
        &last_current_);
    return RowPiece{rows, keys_, records_, frequency_, last_step_, last_used_, last_current_};
  }

 private:
  void ReadRecords() {
    const int64_t floats = table_.layout().floats();
    floats_.resize(rows.size() * floats);
    for (size_t i = 0; i < rows.size(); ++i) {
      float* const record = floats_.data() + static_cast<int64_t>(i) * floats;
      table_.ReadRecord(rows[i], record);
      records_[i] = record;
    }
  }

  template <typename Number>
  void GatherColumn(bool wanted, const Number& number, std::vector<int64_t>* column) {
    if (!wanted) return;
    column->resize(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) (*column)[i] = number(rows[i]);
  }

  const Table& table_;
  const RowParts parts_;
  std::vector<int64_t> keys_;
  std::vector<const float*> records_;
  std::vector<float> floats_;  // of the records, if they are in other types
  std::vector<int64_t> frequency_;
  std::vector<int64_t> last_step_;
  std::vector<int64_t> last_used_;
  std::vector<int64_t> last_current_;
};

// Holds the table's mutex. Pieces point into its records.
class HeldCpuTable final : public HeldTable {
 public:
  HeldCpuTable(Executor& executor, Table* table)
      : executor_(executor), table_(*table), lock_(table->mutex()) {}

  const TableOptions& options() const override { return table_.options(); }
  HeldState state() const override;

  StatusOr<int64_t> CountRows(RowSet set) override;
  Status ReadRows(const RowsToRead& what, FunctionRef<Status(const RowPiece&)> visit) override {
    return WithinMemory([&] { return ReadRowsOf(what, visit); });
  }
  Status ErasedKeys(std::vector<int64_t>* keys) override {
    return WithinMemory([&] {
      *keys = table_.erased_keys();
      return OkStatus();
    });
  }

  StatusOr<bool> PlaceRows(int64_t rows, PlaceBytes place) override;
  Status MakeRoom(int64_t rows) override {
    if (!table_.options().use_hashtable) return OkStatus();
    return WithinMemory([&] { return table_.Reserve(rows); });
  }
  int64_t max_rows_to_fill() const override { return PieceRows(table_); }
  Status FillRows(Span<const int64_t> keys, const RowParts& parts,
                  FunctionRef<Status(const RowsToFill&)> fill) override {
    return WithinMemory([&] { return FillRowsOf(keys, parts, fill); });
  }
  Status Erase(Span<const int64_t> keys) override {
    int64_t erased = 0;
    return WithinMemory([&] { return table_.EraseLocked(executor_, keys, &erased); });
  }

  StatusOr<int64_t> CountWaiting(RowSet set) override;
  Status ReadWaiting(RowSet set, FunctionRef<Status(const WaitingPiece&)> visit) override {
    return WithinMemory([&] { return ReadWaitingIn(set, visit); });
  }
  Status ErasedWaiting(std::vector<int64_t>* ids) override {
    return WithinMemory([&] {
      *ids = table_.waiting()->erased_ids();
      return OkStatus();
    });
  }
  Status SetWaiting(const WaitingPiece& piece) override {
    return WithinMemory([&] { return SetWaitingOf(piece); });
  }
  Status EraseWaiting(Span<const int64_t> ids) override;
  Status ReadBloom(VisitBlocks visit) override {
    return WithinMemory([&] { return table_.bloom()->ForEachNonZeroBlock(visit); });
  }
  Status MergeBloom(Span<const int64_t> blocks, Span<const char> bytes) override {
    return WithinMemory([&] { return table_.bloom()->MergeMax(blocks, bytes); });
  }

  Status SettleOptimizer() override {
    return WithinMemory([&] { return table_.SettleOptimizer(executor_); });
  }
  Status ReadPastSteps(PastSteps* past) override {
    return WithinMemory([&] {
      *past = table_.optimizer()->past_steps();
      return OkStatus();
    });
  }
  Status RestoreOptimizer(const HeldOptimizer& optimizer) override {
    return WithinMemory([&] {
      return table_.RestoreOptimizer(executor_, optimizer.name, optimizer.first_hyper, optimizer.steps);
    });
  }
  Status RestorePastSteps(const PastSteps& past) override {
    return WithinMemory([&] { return table_.mutable_optimizer()->RestorePastSteps(past); });
  }
  Status RestoreClock(const TableClock& clock) override {
    table_.SetClock(clock.steps, clock.uses, clock.counts_global_steps);
    return OkStatus();
  }

  Status EvictForSave() override {
    int64_t evicted = 0;
    return WithinMemory([&] { return table_.EvictForSave(executor_, &evicted); });
  }
  Status TrackChanges() override {
    return WithinMemory([&] { return table_.TrackChanges(); });
  }
  Status BeginSave() override {
    return WithinMemory([&] {
      table_.BeginSave();
      return OkStatus();
    });
  }
  void EndSave(bool ok, ChainEnd end) override {
    table_.EndSave(ok);
    table_.chain_end() = std::move(end);
  }

 private:
  Status ReadRowsOf(const RowsToRead& what, FunctionRef<Status(const RowPiece&)> visit);
  Status FillRowsOf(Span<const int64_t> keys, const RowParts& parts,
                    FunctionRef<Status(const RowsToFill&)> fill);
  Status ReadWaitingIn(RowSet set, FunctionRef<Status(const WaitingPiece&)> visit);
  Status SetWaitingOf(const WaitingPiece& piece);
  bool IsIn(RowSet set, int64_t row) const {
    return table_.in_use(row) && (set == RowSet::kAll || table_.changed(row));
  }
  bool IsWaitingIn(RowSet set, int64_t place) const {
    const WaitingIds& waiting = *std::as_const(table_).waiting();
    return waiting.in_use(place) && (set == RowSet::kAll || waiting.changed(place));
  }

  Executor& executor_;
  Table& table_;
  const MutexLock lock_;
};

HeldState HeldCpuTable::state() const {
  HeldState state;
  state.rows = table_.size();
  state.clock = TableClock{table_.steps(), table_.uses(), table_.counts_global_steps()};
  state.parts = PartsOf(table_);
  state.tracks_changes = table_.tracks_changes();
  state.chain_end = table_.chain_end();
  if (table_.optimizer() != nullptr) {
    const Span<const float> hyper = table_.first_hyper();
    state.optimizer =
        HeldOptimizer{table_.optimizer_name(), table_.optimizer()->steps(), {hyper.begin(), hyper.end()}};
  }
  return state;
}

StatusOr<int64_t> HeldCpuTable::CountRows(RowSet set) {
  if (set == RowSet::kAll) return table_.size();
  int64_t rows = 0;
  for (int64_t row = 0; row < table_.row_limit(); ++row) rows += IsIn(set, row) ? 1 : 0;
  return rows;
}

Status HeldCpuTable::ReadRowsOf(const RowsToRead& what, FunctionRef<Status(const RowPiece&)> visit) {
  PieceOfRows piece(table_, what.parts);
  const auto flush = [&]() -> Status {
    if (piece.rows.empty()) return OkStatus();
    table_.BeginCall();
    SOK_RETURN_IF_ERROR(what.up_to_date ? table_.BringUpToDate(executor_, piece.rows, RowUse::kScan)
                                        : table_.BringUp(executor_, piece.rows, RowUse::kScan));
    SOK_RETURN_IF_ERROR(visit(piece.Gather()));
    piece.rows.clear();
    return OkStatus();
  };
  int64_t left = what.limit;
  for (int64_t row = 0; row < table_.row_limit() && left > 0; ++row) {
    if (!IsIn(what.set, row)) continue;
    piece.rows.push_back(row);
    --left;
    if (static_cast<int64_t>(piece.rows.size()) == PieceRows(table_)) SOK_RETURN_IF_ERROR(flush());
  }
  return flush();
}

StatusOr<bool> HeldCpuTable::PlaceRows(int64_t rows, PlaceBytes place) {
  if (!table_.layout().is_plain() || table_.tiers() != nullptr) return false;
  if (!table_.options().use_hashtable || table_.row_limit() > 0 || table_.optimizer() != nullptr)
    return false;
  SOK_RETURN_IF_ERROR(WithinMemory([&] { return table_.PlaceRows(rows, place); }));
  return true;
}

Status HeldCpuTable::FillRowsOf(Span<const int64_t> keys, const RowParts& parts,
                                FunctionRef<Status(const RowsToFill&)> fill) {
  std::vector<int64_t> rows(keys.size());
  const auto values = parts.slots ? Table::InitialValues::kNone : Table::InitialValues::kSlots;
  table_.BeginCall();
  SOK_RETURN_IF_ERROR(table_.FindOrMake(executor_, keys, Span<int64_t>(rows), values));
  std::vector<float*> records(rows.size());
  const RecordLayout& layout = table_.layout();
  std::vector<float> floats(layout.is_plain() ? 0 : rows.size() * layout.floats());
  for (size_t i = 0; i < rows.size(); ++i) {
    records[i] = layout.is_plain() ? table_.weights(rows[i]) : floats.data() + i * layout.floats();
    // Without slots those that are there stay.
    if (!layout.is_plain()) table_.ReadRecord(rows[i], records[i]);
  }
  const auto column = [&](bool wanted) { return std::vector<int64_t>(wanted ? rows.size() : 0); };
  std::vector<int64_t> frequency = column(parts.frequency);
  std::vector<int64_t> last_step = column(parts.last_step);
  std::vector<int64_t> last_used = column(parts.last_used);
  std::vector<int64_t> last_current = column(parts.last_current);
  SOK_RETURN_IF_ERROR(fill(RowsToFill{records, Span<int64_t>(frequency), Span<int64_t>(last_step),
                                      Span<int64_t>(last_used), Span<int64_t>(last_current)}));
  if (!layout.is_plain()) {
    for (size_t i = 0; i < rows.size(); ++i) table_.WriteRecord(rows[i], records[i]);
  }
  const auto set = [&](const std::vector<int64_t>& values, const auto& set_one) {
    for (size_t i = 0; i < values.size(); ++i) set_one(rows[i], values[i]);
  };
  set(frequency, [&](int64_t row, int64_t value) { table_.set_frequency(row, value); });
  set(last_step, [&](int64_t row, int64_t value) { table_.set_last_step(row, value); });
  set(last_used, [&](int64_t row, int64_t value) { table_.set_last_used(row, value); });
  set(last_current,
      [&](int64_t row, int64_t value) { table_.mutable_optimizer()->SetLastCurrent(row, value); });
  return OkStatus();
}

StatusOr<int64_t> HeldCpuTable::CountWaiting(RowSet set) {
  int64_t count = 0;
  for (int64_t place = 0; place < table_.waiting()->limit(); ++place)
    count += IsWaitingIn(set, place) ? 1 : 0;
  return count;
}

Status HeldCpuTable::ReadWaitingIn(RowSet set, FunctionRef<Status(const WaitingPiece&)> visit) {
  const WaitingIds& waiting = *table_.waiting();
  std::vector<int64_t> ids;
  std::vector<int64_t> counts;
  std::vector<int64_t> last_steps;
  for (std::vector<int64_t>* column : {&ids, &counts, &last_steps}) column->reserve(kPieceRows);
  const auto flush = [&]() -> Status {
    if (ids.empty()) return OkStatus();
    SOK_RETURN_IF_ERROR(visit(WaitingPiece{ids, counts, last_steps}));
    for (std::vector<int64_t>* column : {&ids, &counts, &last_steps}) column->clear();
    return OkStatus();
  };
  for (int64_t place = 0; place < waiting.limit(); ++place) {
    if (!IsWaitingIn(set, place)) continue;
    ids.push_back(waiting.id(place));
    counts.push_back(waiting.count(place));
    last_steps.push_back(waiting.last_step(place));
    if (static_cast<int64_t>(ids.size()) == kPieceRows) SOK_RETURN_IF_ERROR(flush());
  }
  return flush();
}

Status HeldCpuTable::SetWaitingOf(const WaitingPiece& piece) {
  BloomCounters* const bloom = table_.bloom();
  if (bloom != nullptr) SOK_RETURN_IF_ERROR(bloom->Reserve(piece.ids));
  for (int64_t i = 0; i < piece.ids.size(); ++i) {
    const int64_t id = piece.ids[i];
    if (bloom != nullptr) {
      bloom->Add(id, std::max<int64_t>(0, piece.counts[i] - bloom->Count(id)));
    } else {
      SOK_RETURN_IF_ERROR(table_.waiting()->Set(id, piece.counts[i], piece.last_steps[i]));
    }
  }
  return OkStatus();
}

Status HeldCpuTable::EraseWaiting(Span<const int64_t> ids) {
  return WithinMemory([&] {
    SOK_RETURN_IF_ERROR(table_.waiting()->Reserve(0, ids.size()));
    table_.waiting()->EraseAll(ids);
    return OkStatus();
  });
}

}  // namespace

StatusOr<std::unique_ptr<HeldTable>> Table::Hold(const EngineContext& context) {
  return std::unique_ptr<HeldTable>(std::make_unique<HeldCpuTable>(context.executor, this));
}

}  // namespace sok
