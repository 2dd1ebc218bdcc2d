#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "cc/table/table_errors.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/store/record_numbers.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/device_table.h"
#include "cuda/table/directory_rows.h"
#include "cuda/table/insert_rows.h"

namespace sok {
namespace {

std::atomic<uint64_t> num_tables{0};

// Rows of a table without hashing that get their initial values at a time: 1 MiB of numbers on the device,
// however large the table is.
constexpr int64_t kMostStartedAtOnce = 65536;

StaticRows StaticRowsOf(const TableOptions& options) {
  if (options.use_hashtable || options.rank == kNoRank) return {};
  return options.placement.RowsOn(options.rank, options.ranks, options.capacity);
}

// ResourceExhausted if rows of `row_bytes` take more memory than the device has in all, or the host for rows
// in its memory. To find that out by allocating would take all of it for a moment.
Status CheckMemoryIsThere(RowMemory memory, int64_t rows, int64_t row_bytes) {
  size_t free_bytes = 0;
  size_t bytes = 0;
  if (memory == RowMemory::kHost) {
    bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  } else {
    SOK_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_bytes, &bytes), "cannot ask for the device's memory");
  }
  // In doubles, because the product may not fit an integer.
  const double needed = static_cast<double>(rows) * static_cast<double>(row_bytes);
  if (needed <= static_cast<double>(bytes)) return OkStatus();
  return ResourceExhausted(rows, " rows of ", row_bytes, " bytes do not fit into ", bytes,
                           " bytes of memory");
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    StaticKeysKernel(StaticRows static_rows, int64_t first, int64_t n, int64_t* keys, int64_t* rows) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    keys[i] = static_rows.KeyOf(first + i);
    rows[i] = first + i;
  }
}

// *count, which is 0, becomes the number of frames whose rows are in use.
__global__ void __launch_bounds__(kThreadsPerBlock)
    CountRowsUpKernel(TiersView tiers, ColumnView<uint32_t> states, int64_t* count) {
  AwaitPreviousKernels();
  for (int64_t frame = ThreadOfGrid(); frame < tiers.frames; frame += ThreadsOfGrid()) {
    if (!states.is_null() && !IsInUse(states[tiers.row_of_frame[frame]])) continue;
    atomicAdd(reinterpret_cast<unsigned long long*>(count), 1ull);
  }
}

// Tells the records of the rows [first, first + n) the keys of their rows.
__global__ void __launch_bounds__(kThreadsPerBlock)
    WriteStreamsKernel(RowStoreView store, uint64_t seed, ColumnView<int64_t> keys, StaticRows static_rows,
                       int64_t first, int64_t n) {
  AwaitPreviousKernels();
  for (int64_t row = first + ThreadOfGrid(); row < first + n; row += ThreadsOfGrid()) {
    const int64_t key = keys.is_null() ? static_rows.KeyOf(row) : keys[row];
    WriteStream(store, seed, key, store.Record(row));
  }
}

struct CountedUses {
  const int64_t* rows;
  const int32_t* counts;
  int64_t n;
  bool has_frequency;
  bool has_last_used;
  ColumnView<int64_t> frequency;
  ColumnView<int64_t> last_used;
  int64_t uses;
};

__global__ void __launch_bounds__(kThreadsPerBlock) CountUsesKernel(CountedUses in) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < in.n; i += ThreadsOfGrid()) {
    const int64_t row = in.rows[i];
    if (row < 0) continue;
    if (in.has_frequency) in.frequency[row] += in.counts[i];
    if (in.has_last_used) in.last_used[row] = in.uses;
  }
}

}  // namespace

DeviceUsage::DeviceUsage(const TableOptions& options, DeviceAllocator* allocator) {
  const bool admits = options.admission.kind != Admission::Kind::kNone;
  if (admits || options.on_full == OnFull::kEvictLfu) frequency.emplace(allocator);
  if (options.eviction.kind == Eviction::Kind::kGlobalStep) last_step.emplace(allocator);
  if (options.on_full != OnFull::kError) last_used.emplace(allocator);
}

Status DeviceUsage::Reserve(cudaStream_t stream, int64_t rows) {
  for (Column* column : {&frequency, &last_step, &last_used}) {
    if (column->has_value()) SOK_RETURN_IF_ERROR((*column)->Reserve(stream, rows));
  }
  return OkStatus();
}

int64_t DeviceUsage::bytes() const {
  int64_t bytes = 0;
  for (const Column* column : {&frequency, &last_step, &last_used}) {
    if (column->has_value()) bytes += (*column)->bytes();
  }
  return bytes;
}

StatusOr<std::unique_ptr<DeviceTable>> DeviceTable::Create(cudaStream_t stream, const TableMemory& memory,
                                                           TableOptions options) {
  SOK_RETURN_IF_ERROR(CheckOptions(options));
  SOK_RETURN_IF_ERROR(CheckGivenRows(options));
  std::unique_ptr<DeviceTable> table(new DeviceTable(memory, std::move(options)));
  if (table->bloom_.has_value() && table->options_.rank != kNoRank) {
    SOK_RETURN_IF_ERROR(table->Named(table->bloom_->Init(stream, table->options_.admission)));
  }
  SOK_RETURN_IF_ERROR(table->Named(table->store_.AddDisk()));
  SOK_RETURN_IF_ERROR(table->Named(table->UploadInitialRows(stream)));
  SOK_RETURN_IF_ERROR(table->FillStaticRows(stream));
  table->Leave(stream);
  return StatusOr<std::unique_ptr<DeviceTable>>(std::move(table));
}

DeviceTable::DeviceTable(const TableMemory& memory, TableOptions options)
    : serial_(++num_tables),
      options_(std::move(options)),
      definition_fingerprint_(DefinitionFingerprint(options_)),
      static_rows_(StaticRowsOf(options_)),
      device_(memory.device),
      directory_(memory.device),
      store_(options_.dim, memory.rows, memory.device, memory.slab_bytes, RecordFormatOf(options_),
             options_.tiers),
      usage_(options_, memory.device),
      changes_(memory.device) {
  if (options_.admission.kind == Admission::Kind::kCounter) waiting_.emplace(device_);
  if (options_.admission.kind == Admission::Kind::kBloom) bloom_.emplace(device_);
}

int64_t DeviceTable::bytes() const {
  return store_.bytes() + directory_.bytes() + usage_.bytes() + initial_rows_.bytes() +
         (waiting_.has_value() ? waiting_->bytes() : 0) + (bloom_.has_value() ? bloom_->bytes() : 0);
}

StatusOr<TierCounts> DeviceTable::FetchTierCounts() {
  TierCounts counts;
  if (tiers() == nullptr || tiers()->rows() == 0) return counts;
  const cudaStream_t stream = order_.last_stream();
  SOK_RETURN_IF_ERROR(Named(tiers()->FetchCounts(stream, &round_trip_, &counts)));
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<int64_t> count,
                       Named(DeviceBuffer<int64_t>::Allocate(device_, stream, 1)));
  int64_t* const rows_up = count.data();
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(rows_up, 0, sizeof(int64_t), stream), "cannot clear a word");
  const ColumnView<uint32_t> states =
      options_.use_hashtable ? directory_.view().states : ColumnView<uint32_t>();
  SOK_RETURN_IF_ERROR(Named(Launch("CountRowsUp", stream, ShapeFor(tiers()->frames()), CountRowsUpKernel,
                                   tiers()->view(), states, rows_up)));
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched, Named(round_trip_.Fetch(stream, rows_up, 1)));
  counts.rows_in_memory = *fetched;
  return counts;
}

Status DeviceTable::Named(const Status& status) const { return NamedError(options_, status); }

Status DeviceTable::UploadInitialRows(cudaStream_t stream) {
  const std::vector<float>& given = options_.initial_rows;
  if (given.empty()) return OkStatus();
  SOK_ASSIGN_OR_RETURN(initial_rows_,
                       DeviceBuffer<float>::Allocate(device_, stream, static_cast<int64_t>(given.size())));
  return upload_.Copy(stream, given.data(), initial_rows_.bytes(), initial_rows_.data());
}

Status DeviceTable::FillStaticRows(cudaStream_t stream) {
  const int64_t count = static_rows_.count;
  if (options_.use_hashtable || count == 0) return OkStatus();
  const RowMemory below = options_.tiers.has_tiers() ? RowMemory::kHost : options_.memory;
  if (disk() == nullptr) {
    SOK_RETURN_IF_ERROR(Named(CheckMemoryIsThere(below, count, store_.record_bytes())));
  }
  SOK_RETURN_IF_ERROR(Named(ReserveRecords(stream, count)));
  const int64_t most = std::min(PieceOf(count), kMostStartedAtOnce);
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<int64_t> keys_and_rows,
                       Named(DeviceBuffer<int64_t>::Allocate(device_, stream, 2 * most)));
  int64_t* const keys = keys_and_rows.data();
  int64_t* const rows = keys + most;
  return Named(store_.ForEachPiece(stream, count, most, DiskUse::kNew, [&](const RowList& piece) -> Status {
    SOK_RETURN_IF_ERROR(Launch("StaticKeys", stream, ShapeFor(piece.n), StaticKeysKernel, static_rows_,
                               piece.first, piece.n, keys, rows));
    return StartRows(stream, store_.view(), initializer(), rounding_seed(), keys, rows, piece.n);
  }));
}

Status DeviceTable::BringFromDisk(cudaStream_t stream, DeviceAllocator* scratch, const RowList& rows,
                                  DiskUse use, int64_t spare) {
  DeviceTable* const tables[1] = {this};
  return sok::BringFromDisk(stream, scratch, Span<DeviceTable* const>(tables, 1),
                            Span<const RowList>(&rows, 1), Span<const int64_t>(&spare, 1), use);
}

Status BringFromDisk(cudaStream_t stream, DeviceAllocator* scratch, Span<DeviceTable* const> tables,
                     Span<const RowList> rows, Span<const int64_t> spare, DiskUse use) {
  std::vector<RowsOnDisk> needed;
  for (int64_t i = 0; i < tables.size(); ++i) {
    needed.push_back({tables[i]->tiers(), rows[i], spare.empty() ? 0 : spare[i]});
  }
  int64_t failed = 0;
  const Status status = BringFromDisk(stream, scratch, needed, use, &failed);
  return status.ok() ? status : tables[failed]->Named(status);
}

Status DeviceTable::CheckCapacity(int64_t new_keys) const {
  if (options_.capacity == 0 || size() + new_keys <= options_.capacity) return OkStatus();
  return TableIsFull(options_, size(), new_keys);
}

Status DeviceTable::CheckRoom(int64_t new_keys, int64_t present) const {
  if (options_.on_full == OnFull::kError) return CheckCapacity(new_keys);
  if (SurplusOf(new_keys) == 0 || new_keys + present <= options_.capacity) return OkStatus();
  return LookupExceedsCapacity(options_, new_keys + present);
}

int64_t DeviceTable::SurplusOf(int64_t new_keys) const {
  if (options_.on_full == OnFull::kError) return 0;
  return std::max<int64_t>(size() + new_keys - options_.capacity, 0);
}

FilterView DeviceTable::filter() const {
  FilterView filter;
  filter.filter_freq = options_.admission.filter_freq;
  filter.before_lookup = options_.admission.before_lookup;
  filter.has_waiting = waiting_.has_value();
  filter.has_bloom = bloom_.has_value();
  if (waiting_.has_value()) filter.waiting = waiting_->view();
  if (bloom_.has_value()) filter.bloom = bloom_->view();
  return filter;
}

Status DeviceTable::NoRowFor(int64_t key) const { return NoRowForKey(options_, key); }

Status DeviceTable::Reserve(cudaStream_t stream, int64_t new_keys) {
  if (new_keys == 0) return OkStatus();
  // Doubling keeps the number of reservations small; a capacity limits it.
  const auto bounded = [&](int64_t n) { return options_.capacity > 0 ? std::min(n, options_.capacity) : n; };
  const int64_t needed = bounded(directory_.RowLimitWith(new_keys));
  const int64_t doubled = needed <= made_room_ ? 0 : std::min(2 * row_limit(), needed + (int64_t{1} << 20));
  const int64_t wanted = std::max(needed, bounded(doubled));
  const auto reserve = [&](int64_t rows) {
    // As many keys as rows: otherwise rows could take the memory in which the index has to grow.
    SOK_RETURN_IF_ERROR(directory_.Reserve(stream, bounded(size() + new_keys + rows - needed), rows));
    return ReserveRecords(stream, rows);
  };
  const Status ahead = reserve(wanted);
  if (ahead.ok()) return ahead;
  const Status status = wanted > needed ? reserve(needed) : ahead;
  return status.ok() ? status : NoRoomFor(options_, size(), bytes(), status);
}

Status DeviceTable::MakeRoom(cudaStream_t stream, int64_t new_keys) {
  SOK_RETURN_IF_ERROR(Reserve(stream, new_keys));
  made_room_ = store_.rows();
  return OkStatus();
}

Status DeviceTable::ReserveRecords(cudaStream_t stream, int64_t rows) {
  SOK_RETURN_IF_ERROR(store_.Reserve(stream, rows));
  SOK_RETURN_IF_ERROR(usage_.Reserve(stream, rows));
  SOK_RETURN_IF_ERROR(changes_.Reserve(stream, rows, 0));
  return optimizer_ == nullptr ? OkStatus() : optimizer_->Reserve(stream, rows);
}

Status DeviceTable::StartUse(cudaStream_t stream, const int64_t* rows, int64_t n) {
  if (n == 0) return OkStatus();
  directory_.CountGiven(n);
  const RowList list = {rows, 0, n};
  if (usage_.frequency.has_value()) {
    SOK_RETURN_IF_ERROR(Named(FillColumn(stream, usage_.frequency->view(), list, int64_t{0})));
  }
  if (usage_.last_step.has_value()) {
    SOK_RETURN_IF_ERROR(Named(FillColumn(stream, usage_.last_step->view(), list, steps_)));
  }
  if (usage_.last_used.has_value()) {
    SOK_RETURN_IF_ERROR(Named(FillColumn(stream, usage_.last_used->view(), list, uses_)));
  }
  if (optimizer_ != nullptr) {
    optimizer_->UseRows(row_limit());
    SOK_RETURN_IF_ERROR(Named(optimizer_->OnNewRows(stream, rows, n)));
  }
  return Named(changes_.MarkChanged(stream, rows, n));
}

Status DeviceTable::CountUses(cudaStream_t stream, const int64_t* rows, const int32_t* counts, int64_t n) {
  ++uses_;
  CountedUses uses = {};
  uses.rows = rows;
  uses.counts = counts;
  uses.n = n;
  uses.has_frequency = usage_.frequency.has_value();
  uses.has_last_used = usage_.last_used.has_value();
  if (!uses.has_frequency && !uses.has_last_used) return OkStatus();
  if (uses.has_frequency) uses.frequency = usage_.frequency->view();
  if (uses.has_last_used) uses.last_used = usage_.last_used->view();
  uses.uses = uses_;
  SOK_RETURN_IF_ERROR(Named(Launch("CountUses", stream, ShapeFor(n), CountUsesKernel, uses)));
  return Named(changes_.MarkChanged(stream, rows, n));
}

Status DeviceTable::FindOwn(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, bool own,
                            int64_t* rows, uint64_t* first_unknown) {
  RowFinder finder_of_table = finder();
  finder_of_table.may_be_foreign = own && options_.ranks > 1;
  finder_of_table.owners = options_.placement.owners(options_.ranks);
  finder_of_table.rank = options_.rank;
  DeviceBuffer<int64_t> boundaries;
  if (finder_of_table.may_be_foreign && finder_of_table.owners.kind == PlacementKind::kRanges) {
    SOK_ASSIGN_OR_RETURN(boundaries, DeviceBuffer<int64_t>::Allocate(scratch, stream, options_.ranks + 1));
    SOK_RETURN_IF_ERROR(
        upload_.Copy(stream, finder_of_table.owners.boundaries, boundaries.bytes(), boundaries.data()));
    finder_of_table.owners.boundaries = boundaries.data();
  }
  const RowFinder* finders = nullptr;
  upload_.Add(Span<const RowFinder>(&finder_of_table, 1), &finders);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, upload_.Send(stream, scratch));
  return FindRows(stream, ids, finders, rows, first_unknown, /*any_absent=*/nullptr);
}

Status DeviceTable::FindOrMake(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* keys, int64_t n,
                               bool own, int64_t* rows) {
  if (n == 0) return OkStatus();
  if (n > std::numeric_limits<int32_t>::max()) return TooManyKeys(options_, n);
  // begin[2] of the keys, begin[2] of those without a row, and the first key that has no row in a table
  // without hashing.
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<int64_t> words,
                       Named(DeviceBuffer<int64_t>::Allocate(scratch, stream, 5)));
  int64_t* const begin = words.data();
  auto* const first_unknown = reinterpret_cast<uint64_t*>(begin + 4);
  const int64_t initial_words[5] = {0, n, 0, 0, n};
  SOK_RETURN_IF_ERROR(Named(upload_.Copy(stream, initial_words, sizeof(initial_words), begin)));
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<int32_t> which,
                       Named(DeviceBuffer<int32_t>::Allocate(scratch, stream, n)));
  const IdsOfGroup ids = {1, begin, keys, n};
  const SomeIds absent = {begin + 2, which.data()};
  SOK_RETURN_IF_ERROR(Named(FindOwn(stream, scratch, ids, own, rows, first_unknown)));
  SOK_RETURN_IF_ERROR(Named(ListAbsent(stream, scratch, ids, rows, absent)));
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched, Named(round_trip_.Fetch(stream, begin, 5)));
  const int64_t made = fetched[3];
  if (fetched[4] < n) return KeyWithoutRow(stream, keys, static_cast<uint64_t>(fetched[4]));
  SOK_RETURN_IF_ERROR(CheckCapacity(made));
  SOK_RETURN_IF_ERROR(Reserve(stream, made));
  // What needs memory comes first, so that no key has a row and waits for one.
  DeviceWaiting::Places waiting;
  if (waiting_.has_value()) {
    SOK_RETURN_IF_ERROR(Named(waiting_->FindPlaces(stream, scratch, &round_trip_, keys, n, &waiting)));
  }
  const int64_t spare = SpareFor(made);
  SOK_RETURN_IF_ERROR(BringFromDisk(stream, scratch, {rows, 0, n}, DiskUse::kLookup, spare));
  const int64_t made_begin[2] = {0, made};
  DeviceTable* const tables[1] = {this};
  const auto place_new_rows = [&] {
    return BringFromDisk(stream, scratch, {rows, 0, n}, DiskUse::kNew, spare);
  };
  SOK_RETURN_IF_ERROR(
      Named(InsertRows(stream, scratch, &upload_, Span<DeviceTable* const>(tables, 1), ids, absent,
                       Span<const int64_t>(made_begin, 2), {}, rows, place_new_rows)));
  return waiting_.has_value() ? Named(waiting_->ErasePlaces(stream, waiting)) : OkStatus();
}

Status DeviceTable::KeyWithoutRow(cudaStream_t stream, const int64_t* keys, uint64_t position) {
  SOK_ASSIGN_OR_RETURN(const int64_t* const key, Named(round_trip_.Fetch(stream, keys + position, 1)));
  return NoRowFor(*key);
}

Status DeviceTable::Erase(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* keys, int64_t n,
                          int64_t* erased) {
  *erased = 0;
  if (!options_.use_hashtable) return CannotEraseKeys(options_);
  if (n == 0) return OkStatus();
  if (n > std::numeric_limits<int32_t>::max()) return TooManyKeys(options_, n);
  SOK_ASSIGN_OR_RETURN(DeviceBuffer<int64_t> memory,
                       Named(DeviceBuffer<int64_t>::Allocate(scratch, stream, 2 * n + 1)));
  int64_t* const rows = memory.data();
  int64_t* const distinct = rows + n;
  int64_t* const count = distinct + n;
  SOK_RETURN_IF_ERROR(Named(FindKeys(stream, directory_.view().index, keys, n, rows)));
  SOK_RETURN_IF_ERROR(
      Named(SortDistinctRows(stream, scratch, rows, n, directory_.row_limit(), distinct, count)));
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched, Named(round_trip_.Fetch(stream, count, 1)));
  const int64_t found = *fetched;
  // What needs memory comes first, so that an error leaves all ids as they were.
  SOK_RETURN_IF_ERROR(ReserveErase(stream, found));
  if (waiting_.has_value()) {
    SOK_RETURN_IF_ERROR(Named(waiting_->Erase(stream, scratch, &round_trip_, keys, n)));
  }
  SOK_RETURN_IF_ERROR(EraseRowsOf(stream, distinct, found, rows));
  *erased = found;
  return OkStatus();
}

Status DeviceTable::ReserveErase(cudaStream_t stream, int64_t n) {
  SOK_RETURN_IF_ERROR(Named(directory_.ReserveErase(stream, n)));
  return Named(changes_.Reserve(stream, store_.rows(), n));
}

Status DeviceTable::EraseRowsOf(cudaStream_t stream, int64_t* rows, int64_t n, int64_t* keys) {
  if (n == 0) return OkStatus();
  SOK_RETURN_IF_ERROR(Named(EraseRows(stream, directory_, rows, n, keys)));
  directory_.CountErased(stream, n);
  num_erased_ += n;
  return Named(changes_.MarkErased(stream, rows, keys, n));
}

Status DeviceTable::CheckOptimizer(const DeviceOptimizer& optimizer, Span<const float> hyper) const {
  if (!store_.layout().is_plain() && optimizer.has_catch_up()) {
    return WouldRoundManyStepsOnce(options_, optimizer.name());
  }
  return Named(optimizer.CheckHyper(hyper));
}

Status DeviceTable::CheckStep(std::string_view optimizer, Span<const float> hyper) const {
  if (optimizer_ == nullptr) {
    SOK_ASSIGN_OR_RETURN(const auto made, Named(DeviceOptimizer::Make(optimizer, device_)));
    return CheckOptimizer(*made, hyper);
  }
  if (optimizer_->name() != optimizer) {
    return TrainedByAnother(options_, optimizer_->name(), optimizer);
  }
  return Named(optimizer_->CheckHyper(hyper));
}

Status DeviceTable::NoRowNumber(int64_t row) const { return NoRowNumbered(options_, row, size()); }

Status DeviceTable::AttachOptimizer(cudaStream_t stream, std::string_view name, Span<const float> hyper) {
  SOK_ASSIGN_OR_RETURN(std::unique_ptr<DeviceOptimizer> optimizer,
                       Named(DeviceOptimizer::Make(name, device_)));
  SOK_RETURN_IF_ERROR(Named(optimizer->Reserve(stream, store_.rows())));
  const std::vector<SlotSpec> slots = optimizer->rule().Slots(options_.dim, hyper);
  const ColumnView<int64_t> keys = options_.use_hashtable ? directory_.view().keys : ColumnView<int64_t>();
  const Status status = store_.SetSlots(
      stream, slots, row_limit(), [&](const RowStoreView& view, const RowList& piece) -> Status {
        if (!view.shape.has_stream) return OkStatus();
        return Launch("WriteStreams", stream, ShapeFor(piece.n), WriteStreamsKernel, view, rounding_seed(),
                      keys, static_rows_, piece.first, piece.n);
      });
  if (status.code() == StatusCode::kResourceExhausted) return NoRoomFor(options_, size(), bytes(), status);
  SOK_RETURN_IF_ERROR(Named(status));
  optimizer->UseRows(row_limit());
  optimizer_ = std::move(optimizer);
  first_hyper_.assign(hyper.begin(), hyper.end());
  return OkStatus();
}

Status DeviceTable::BringUpToDate(cudaStream_t stream, const RowList& rows) {
  if (is_up_to_date() || rows.n == 0) return OkStatus();
  const DeviceCatchUp catch_up = {optimizer_.get(), store_.view(), rows};
  SOK_RETURN_IF_ERROR(Named(EnqueueCatchUps(stream, Span<const DeviceCatchUp>(&catch_up, 1))));
  return rows.rows == nullptr ? OkStatus() : Named(changes_.MarkChanged(stream, rows.rows, rows.n));
}

Status DeviceTable::PrepareStep(cudaStream_t stream, Span<const float> hyper) {
  if (disk() == nullptr || !optimizer_->StartsAnew(hyper)) return OkStatus();
  SOK_RETURN_IF_ERROR(
      Named(store_.ForEachPiece(stream, row_limit(), PieceOf(row_limit()), DiskUse::kStep,
                                [&](const RowList& piece) { return BringUpToDate(stream, piece); })));
  return Named(optimizer_->ForgetPastSteps(stream));
}

Status DeviceTable::FinishStep(cudaStream_t stream, const int64_t* rows, int64_t n) {
  const int64_t step = CountStep();
  if (usage_.last_step.has_value()) {
    SOK_RETURN_IF_ERROR(Named(FillColumn(stream, usage_.last_step->view(), {rows, 0, n}, step)));
  }
  return Named(changes_.MarkChanged(stream, rows, n));
}

void DeviceTable::SetClock(int64_t steps, int64_t uses, bool of_graph) {
  steps_ = steps;
  uses_ = uses;
  counts_global_steps_ = of_graph;
}

Status DeviceTable::SetGlobalStep(int64_t step) {
  if (!has_global_step_ && (!counts_global_steps_ || step < steps_)) {
    SOK_RETURN_IF_ERROR(MoveSteps(order_.last_stream(), step - steps_));
  }
  counts_global_steps_ = true;
  has_global_step_ = true;
  steps_ = std::max(steps_, step);
  return OkStatus();
}

int64_t DeviceTable::CountStep() {
  if (!has_global_step_) ++steps_;
  return steps_;
}

Status DeviceTable::MoveSteps(cudaStream_t stream, int64_t by) {
  if (by == 0) return OkStatus();
  if (usage_.last_step.has_value()) {
    SOK_RETURN_IF_ERROR(Named(AddToSteps(stream, usage_.last_step->view(), row_limit(), by)));
  }
  if (waiting_.has_value()) SOK_RETURN_IF_ERROR(Named(waiting_->MoveLastSteps(stream, by)));
  Leave(stream);
  steps_ += by;
  // An incremental checkpoint would not contain the shifted last steps of unchanged rows.
  chain_end_ = {};
  return OkStatus();
}

Status DeviceTable::TrackChanges(cudaStream_t stream) {
  // The waiting ids first: the table says whether changes are tracked.
  if (waiting_.has_value()) SOK_RETURN_IF_ERROR(Named(waiting_->TrackChanges(stream)));
  return Named(changes_.Start(stream, store_.rows()));
}

}  // namespace sok
