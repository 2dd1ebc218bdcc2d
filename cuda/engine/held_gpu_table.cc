#include <algorithm>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/optimizers/rule_info.h"
#include "cc/table/table_errors.h"
#include "cuda/base/device_buffer.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/engine/rows_in_pieces.h"
#include "cuda/group/gpu_call.h"
#include "cuda/table/select_rows.h"

namespace sok {
namespace {

class HeldGpuTable final : public HeldTable {
 public:
  HeldGpuTable(const EngineContext& context, DeviceAllocator* own, DeviceTable* table, int64_t window_rows)
      : call_(context, own),
        table_(*table),
        // A multiple of 32. Records of a window are read, and so in memory, at once.
        window_rows_(table->disk() == nullptr
                         ? window_rows
                         : std::min(window_rows, std::max<int64_t>(RowsOfPiece(*table) / 32, 1) * 32)),
        at_work_(call_.stream(), &call_.executor(), Span<DeviceTable* const>(&table, 1)) {}

  Status Enter() { return at_work_.Enter(); }

  const TableOptions& options() const override { return table_.options(); }
  HeldState state() const override;

  StatusOr<int64_t> CountRows(RowSet set) override;
  Status ReadRows(const RowsToRead& what, FunctionRef<Status(const RowPiece&)> visit) override {
    return WithinMemory([&] { return ReadRowsOf(what, visit); });
  }
  Status ErasedKeys(std::vector<int64_t>* keys) override {
    return WithinMemory([&] { return table_.changes().FetchErased(stream(), keys); });
  }

  Status MakeRoom(int64_t rows) override {
    if (!table_.options().use_hashtable) return OkStatus();
    return WithinMemory([&] { return table_.MakeRoom(stream(), rows); });
  }
  int64_t max_rows_to_fill() const override { return RowsOfPiece(table_); }
  Status FillRows(Span<const int64_t> keys, const RowParts& parts,
                  FunctionRef<Status(const RowsToFill&)> fill) override {
    return WithinMemory([&] { return FillRowsOf(keys, parts, fill); });
  }
  Status Erase(Span<const int64_t> keys) override {
    return WithinMemory([&] { return EraseKeysOf(keys); });
  }

  StatusOr<int64_t> CountWaiting(RowSet set) override;
  Status ReadWaiting(RowSet set, FunctionRef<Status(const WaitingPiece&)> visit) override {
    return WithinMemory([&] { return ReadWaitingIn(set, visit); });
  }
  Status ErasedWaiting(std::vector<int64_t>* ids) override {
    return WithinMemory([&] { return table_.waiting()->changes().FetchErased(stream(), ids); });
  }
  Status SetWaiting(const WaitingPiece& piece) override {
    return WithinMemory([&] { return SetWaitingOf(piece); });
  }
  Status EraseWaiting(Span<const int64_t> ids) override {
    return WithinMemory([&] { return EraseWaitingIds(ids); });
  }
  Status ReadBloom(VisitBlocks visit) override {
    return WithinMemory([&] { return ReadBloomIn(visit); });
  }
  Status MergeBloom(Span<const int64_t> blocks, Span<const char> bytes) override {
    return table_.bloom()->MergeMax(stream(), call_.scratch(), blocks, bytes);
  }

  Status SettleOptimizer() override {
    return WithinMemory([&] { return Settle(); });
  }
  Status ReadPastSteps(PastSteps* past) override {
    return WithinMemory([&] {
      *past = table_.optimizer()->past_steps();
      return OkStatus();
    });
  }
  Status RestoreOptimizer(const HeldOptimizer& optimizer) override {
    return WithinMemory([&] { return RestoreOptimizerOf(optimizer); });
  }
  Status RestorePastSteps(const PastSteps& past) override {
    return WithinMemory([&] { return table_.optimizer()->RestorePastSteps(stream(), past); });
  }
  Status RestoreClock(const TableClock& clock) override {
    table_.SetClock(clock.steps, clock.uses, clock.counts_global_steps);
    return OkStatus();
  }

  Status EvictForSave() override {
    return WithinMemory([&] { return Evict(); });
  }
  Status TrackChanges() override { return table_.TrackChanges(stream()); }
  Status BeginSave() override {
    SOK_RETURN_IF_ERROR(table_.changes().BeginSave(stream()));
    return table_.waiting() == nullptr ? OkStatus() : table_.waiting()->changes().BeginSave(stream());
  }
  void EndSave(bool ok, ChainEnd end) override {
    // If memory runs out or the device is lost, the changes stay marked.
    (void)table_.changes().EndSave(stream(), ok).ok();
    if (table_.waiting() != nullptr) (void)table_.waiting()->changes().EndSave(stream(), ok).ok();
    table_.chain_end() = std::move(end);
  }

 private:
  cudaStream_t stream() const { return call_.stream(); }
  Status ReadRowsOf(const RowsToRead& what, FunctionRef<Status(const RowPiece&)> visit);
  Status FillRowsOf(Span<const int64_t> keys, const RowParts& parts,
                    FunctionRef<Status(const RowsToFill&)> fill);
  Status EraseKeysOf(Span<const int64_t> keys);
  Status ReadWaitingIn(RowSet set, FunctionRef<Status(const WaitingPiece&)> visit);
  Status SetWaitingOf(const WaitingPiece& piece);
  Status EraseWaitingIds(Span<const int64_t> ids);
  Status ReadBloomIn(VisitBlocks visit);
  Status Settle();
  Status RestoreOptimizerOf(const HeldOptimizer& optimizer);
  Status Evict();
  // Lists the rows of a window that a save evicts, or the waiting ids.
  Status SelectGoing(const RowWindow& window, SelectedRows* going);
  Status SelectGoingWaiting(const RowWindow& window, SelectedRows* going);
  // Calls select(window, &selected) on windows of the numbers [0, limit), in order, and visit(rows, n) on the
  // selected rows, on the device.
  template <typename Select, typename Visit>
  Status ForEachWindow(int64_t limit, const Select& select, const Visit& visit);
  // How many of the numbers [0, limit) are selected.
  template <typename Select>
  StatusOr<int64_t> CountIn(int64_t limit, const Select& select);
  // Calls visit(rows, n) on pieces of the rows of `set`, on the device, in order.
  template <typename Visit>
  Status ForEachPiece(RowSet set, int64_t limit, const Visit& visit);
  // Copies keys from the host to the device.
  StatusOr<DeviceBuffer<int64_t>> Upload(Span<const int64_t> keys);
  StatusOr<int64_t> Count(const SelectedRows& selected);

  GpuCall call_;
  DeviceTable& table_;
  const int64_t window_rows_;
  TablesAtWork at_work_;
};

HeldState HeldGpuTable::state() const {
  HeldState state;
  state.rows = table_.size();
  state.clock = TableClock{table_.steps(), table_.uses(), table_.counts_global_steps()};
  state.parts.slots = table_.rows().width > table_.options().dim;
  state.parts.frequency = table_.usage().frequency.has_value();
  state.parts.last_step = table_.usage().last_step.has_value();
  state.parts.last_used = table_.usage().last_used.has_value();
  state.parts.last_current = table_.optimizer() != nullptr && table_.optimizer()->can_save_lag();
  state.tracks_changes = table_.changes().tracks();
  state.chain_end = table_.chain_end();
  if (table_.optimizer() != nullptr) {
    const Span<const float> hyper = table_.first_hyper();
    state.optimizer =
        HeldOptimizer{table_.optimizer()->name(), table_.optimizer()->steps(), {hyper.begin(), hyper.end()}};
  }
  return state;
}

StatusOr<int64_t> HeldGpuTable::Count(const SelectedRows& selected) {
  SOK_ASSIGN_OR_RETURN(const int64_t* const count,
                       table_.round_trip().Fetch(stream(), selected.count.data(), 1));
  return *count;
}

template <typename Select, typename Visit>
Status HeldGpuTable::ForEachWindow(int64_t limit, const Select& select, const Visit& visit) {
  for (int64_t first = 0; first < limit; first += window_rows_) {
    SelectedRows selected;
    SOK_RETURN_IF_ERROR(select(RowWindow{first, std::min(window_rows_, limit - first)}, &selected));
    SOK_ASSIGN_OR_RETURN(const int64_t count, Count(selected));
    if (count > 0) SOK_RETURN_IF_ERROR(visit(selected.rows.data(), count));
  }
  return OkStatus();
}

template <typename Select>
StatusOr<int64_t> HeldGpuTable::CountIn(int64_t limit, const Select& select) {
  int64_t count = 0;
  SOK_RETURN_IF_ERROR(ForEachWindow(limit, select, [&](int64_t*, int64_t n) {
    count += n;
    return OkStatus();
  }));
  return count;
}

StatusOr<int64_t> HeldGpuTable::CountRows(RowSet set) {
  if (set == RowSet::kAll) return table_.size();
  return CountIn(table_.row_limit(), [&](const RowWindow& window, SelectedRows* changed) {
    return SelectInUse(stream(), call_.scratch(), &table_, window, /*changed_only=*/true, changed);
  });
}

template <typename Visit>
Status HeldGpuTable::ForEachPiece(RowSet set, int64_t limit, const Visit& visit) {
  const auto select = [&](const RowWindow& window, SelectedRows* selected) {
    return SelectInUse(stream(), call_.scratch(), &table_, window, set == RowSet::kChanged, selected);
  };
  const int64_t piece = RowsOfPiece(table_);
  int64_t left = limit;
  return ForEachWindow(table_.row_limit(), select, [&](const int64_t* rows, int64_t n) -> Status {
    const int64_t wanted = std::min(n, left);
    left -= wanted;
    for (int64_t first = 0; first < wanted; first += piece) {
      const int64_t of_piece = std::min(piece, wanted - first);
      table_.BeginPiece();
      SOK_RETURN_IF_ERROR(
          table_.BringFromDisk(stream(), call_.scratch(), {rows + first, 0, of_piece}, DiskUse::kStep));
      SOK_RETURN_IF_ERROR(visit(rows + first, of_piece));
    }
    return OkStatus();
  });
}

Status HeldGpuTable::ReadRowsOf(const RowsToRead& what, FunctionRef<Status(const RowPiece&)> visit) {
  RowsInPieces pieces(stream(), call_.scratch(), &table_);
  return ForEachPiece(what.set, what.limit, [&](const int64_t* rows, int64_t n) -> Status {
    if (what.up_to_date) SOK_RETURN_IF_ERROR(table_.BringUpToDate(stream(), {rows, 0, n}));
    SOK_ASSIGN_OR_RETURN(const RowPiece piece, pieces.Read(what.parts, rows, n));
    return visit(piece);
  });
}

StatusOr<DeviceBuffer<int64_t>> HeldGpuTable::Upload(Span<const int64_t> keys) {
  StatusOr<DeviceBuffer<int64_t>> buffer =
      DeviceBuffer<int64_t>::Allocate(call_.scratch(), stream(), keys.size());
  SOK_RETURN_IF_ERROR(buffer.status());
  if (!keys.empty()) {
    SOK_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(buffer.value().data(), keys.data(), static_cast<size_t>(buffer.value().bytes()),
                        cudaMemcpyHostToDevice, stream()),
        "cannot copy ", keys.size(), " keys to the device");
    // The caller may free the host's array.
    SOK_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream()), "cannot wait for the device");
  }
  return buffer;
}

Status HeldGpuTable::FillRowsOf(Span<const int64_t> keys, const RowParts& parts,
                                FunctionRef<Status(const RowsToFill&)> fill) {
  const int64_t n = keys.size();
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<int64_t> device_keys, Upload(keys));
  SOK_ASSIGN_OR_RETURN(auto rows, DeviceBuffer<int64_t>::Allocate(call_.scratch(), stream(), n));
  RowsInPieces pieces(stream(), call_.scratch(), &table_);
  SOK_ASSIGN_OR_RETURN(RowsToFill to_fill, pieces.Prepare(parts, n));
  table_.BeginPiece();
  SOK_RETURN_IF_ERROR(table_.FindOrMake(stream(), call_.scratch(), device_keys.data(), n,
                                        /*own=*/false, rows.data()));
  SOK_RETURN_IF_ERROR(fill(to_fill));
  return pieces.Write(parts, rows.data(), n);
}

Status HeldGpuTable::EraseKeysOf(Span<const int64_t> keys) {
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<int64_t> device_keys, Upload(keys));
  int64_t erased = 0;
  return table_.Erase(stream(), call_.scratch(), device_keys.data(), keys.size(), &erased);
}

StatusOr<int64_t> HeldGpuTable::CountWaiting(RowSet set) {
  if (set == RowSet::kAll) return table_.waiting()->size();
  return CountIn(table_.waiting()->limit(), [&](const RowWindow& window, SelectedRows* places) {
    return SelectWaiting(stream(), call_.scratch(), table_.waiting(), window, /*changed_only=*/true,
                         INT64_MAX, places);
  });
}

Status HeldGpuTable::ReadWaitingIn(RowSet set, FunctionRef<Status(const WaitingPiece&)> visit) {
  constexpr int64_t kPiece = 32768;
  DeviceBuffer<int64_t> numbers;
  std::vector<int64_t> host;
  const auto visit_piece = [&](const int64_t* places, int64_t n) -> Status {
    host.resize(3 * n);
    SOK_RETURN_IF_ERROR(GatherWaiting(stream(), *table_.waiting(), places, n, numbers.data()));
    SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(host.data(), numbers.data(), host.size() * sizeof(int64_t),
                                             cudaMemcpyDeviceToHost, stream()),
                             "cannot copy ", n, " ids from the device");
    SOK_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream()), "cannot wait for the device");
    const Span<const int64_t> all = host;
    return visit(WaitingPiece{all.subspan(0, n), all.subspan(n, n), all.subspan(2 * n, n)});
  };
  const auto select = [&](const RowWindow& window, SelectedRows* places) {
    return SelectWaiting(stream(), call_.scratch(), table_.waiting(), window, set == RowSet::kChanged,
                         INT64_MAX, places);
  };
  SOK_ASSIGN_OR_RETURN(numbers,
                       DeviceBuffer<int64_t>::Allocate(call_.scratch(), stream(),
                                                       3 * std::min(kPiece, table_.waiting()->size())));
  return ForEachWindow(table_.waiting()->limit(), select, [&](const int64_t* places, int64_t n) -> Status {
    for (int64_t first = 0; first < n; first += kPiece) {
      SOK_RETURN_IF_ERROR(visit_piece(places + first, std::min(kPiece, n - first)));
    }
    return OkStatus();
  });
}

Status HeldGpuTable::SetWaitingOf(const WaitingPiece& piece) {
  const int64_t n = piece.ids.size();
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<int64_t> ids, Upload(piece.ids));
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<int64_t> counts, Upload(piece.counts));
  if (table_.bloom() != nullptr) {
    return table_.bloom()->RaiseTo(stream(), ids.data(), counts.data(), n);
  }
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<int64_t> last_steps, Upload(piece.last_steps));
  return table_.waiting()->Set(stream(), call_.scratch(), &table_.upload(), &table_.round_trip(), ids.data(),
                               counts.data(), last_steps.data(), n);
}

Status HeldGpuTable::EraseWaitingIds(Span<const int64_t> ids) {
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<int64_t> device_ids, Upload(ids));
  return table_.waiting()->Erase(stream(), call_.scratch(), &table_.round_trip(), device_ids.data(),
                                 ids.size());
}

Status HeldGpuTable::ReadBloomIn(VisitBlocks visit) {
  constexpr int64_t kPieceBytes = int64_t{16} << 20;
  const int64_t bytes = table_.bloom()->bytes();
  std::vector<char> host(std::min(bytes, kPieceBytes));
  for (int64_t first = 0; first < bytes; first += kPieceBytes) {
    const int64_t n = std::min(kPieceBytes, bytes - first);
    const auto* const counters = static_cast<const char*>(table_.bloom()->view().counters);
    SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(host.data(), counters + first, static_cast<size_t>(n),
                                             cudaMemcpyDeviceToHost, stream()),
                             "cannot copy ", n, " bytes from the device");
    SOK_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream()), "cannot wait for the device");
    SOK_RETURN_IF_ERROR(VisitNonZeroBlocks(first / kBloomBlockBytes, {host.data(), n}, visit));
  }
  return OkStatus();
}

Status HeldGpuTable::Settle() {
  if (table_.is_up_to_date()) return OkStatus();
  SOK_RETURN_IF_ERROR(ForEachPiece(RowSet::kAll, INT64_MAX, [&](const int64_t* rows, int64_t n) {
    return table_.BringUpToDate(stream(), {rows, 0, n});
  }));
  return table_.optimizer()->ForgetPastSteps(stream());
}

Status HeldGpuTable::RestoreOptimizerOf(const HeldOptimizer& optimizer) {
  if (table_.optimizer() != nullptr) return HasOptimizerAlready(options(), table_.optimizer()->name());
  SOK_RETURN_IF_ERROR(table_.CheckStep(optimizer.name, optimizer.first_hyper));
  SOK_RETURN_IF_ERROR(table_.AttachOptimizer(stream(), optimizer.name, optimizer.first_hyper));
  return table_.Named(table_.optimizer()->RestoreSteps(stream(), optimizer.steps));
}

Status HeldGpuTable::SelectGoing(const RowWindow& window, SelectedRows* going) {
  const Eviction& eviction = options().eviction;
  if (eviction.kind == Eviction::Kind::kGlobalStep) {
    return SelectUnused(stream(), call_.scratch(), &table_, window, table_.steps() - eviction.steps_to_live,
                        going);
  }
  table_.BeginPiece();
  SOK_RETURN_IF_ERROR(
      table_.BringFromDisk(stream(), call_.scratch(), {nullptr, window.first, window.n}, DiskUse::kStep));
  return SelectSmall(stream(), call_.scratch(), &table_, window, eviction.l2_weight_threshold, going);
}

Status HeldGpuTable::SelectGoingWaiting(const RowWindow& window, SelectedRows* going) {
  return SelectWaiting(stream(), call_.scratch(), table_.waiting(), window, /*changed_only=*/false,
                       table_.steps() - options().eviction.steps_to_live, going);
}

// Counts what goes, and makes room for all of it, before the first row is evicted. Then only the lists of the
// windows' rows need memory again. If that fails, the rows of some windows were evicted, and the next save
// evicts the others.
Status HeldGpuTable::Evict() {
  const Eviction::Kind kind = options().eviction.kind;
  if (kind == Eviction::Kind::kNone) return OkStatus();
  if (kind == Eviction::Kind::kL2Weight) {
    SOK_RETURN_IF_ERROR(ForEachPiece(RowSet::kAll, INT64_MAX, [&](const int64_t* rows, int64_t n) {
      return table_.BringUpToDate(stream(), {rows, 0, n});
    }));
  }
  const bool evicts_waiting = kind == Eviction::Kind::kGlobalStep && table_.waiting() != nullptr;
  const auto select = [&](const RowWindow& window, SelectedRows* going) {
    return SelectGoing(window, going);
  };
  const auto select_waiting = [&](const RowWindow& window, SelectedRows* going) {
    return SelectGoingWaiting(window, going);
  };
  SOK_ASSIGN_OR_RETURN(const int64_t count, CountIn(table_.row_limit(), select));
  SOK_RETURN_IF_ERROR(table_.ReserveErase(stream(), count));
  int64_t num_waiting = 0;
  if (evicts_waiting) {
    SOK_ASSIGN_OR_RETURN(num_waiting, CountIn(table_.waiting()->limit(), select_waiting));
    SOK_RETURN_IF_ERROR(table_.waiting()->Reserve(stream(), 0, num_waiting));
  }
  SOK_ASSIGN_OR_RETURN(const auto keys,
                       DeviceBuffer<int64_t>::Allocate(call_.scratch(), stream(),
                                                       std::min(window_rows_, std::max(count, num_waiting))));
  if (num_waiting > 0) {
    SOK_RETURN_IF_ERROR(
        ForEachWindow(table_.waiting()->limit(), select_waiting, [&](int64_t* places, int64_t n) {
          return table_.waiting()->ErasePlaces(stream(), places, n, keys.data());
        }));
  }
  if (count == 0) return OkStatus();
  return ForEachWindow(table_.row_limit(), select, [&](int64_t* rows, int64_t n) {
    return table_.EraseRowsOf(stream(), rows, n, keys.data());
  });
}

}  // namespace

StatusOr<std::unique_ptr<HeldTable>> HoldTable(const EngineContext& context, DeviceAllocator* own,
                                               DeviceTable* table, int64_t window_rows) {
  auto held = std::make_unique<HeldGpuTable>(context, own, table, window_rows);
  SOK_RETURN_IF_ERROR(held->Enter());
  return std::unique_ptr<HeldTable>(std::move(held));
}

}  // namespace sok
