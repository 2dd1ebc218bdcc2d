#include "cuda/group/merged_rows.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/parts.h"
#include "cuda/store/device_tiers.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/device_table.h"
#include "cuda/table/directory_rows.h"
#include "cuda/table/insert_rows.h"
#include "cuda/table/least_used.h"
#include "cuda/training/device_optimizer.h"

namespace sok {
namespace {

// Tables whose rows catch up in one launch. Each occurs at most once: a row that is in two parts would take
// its steps twice.
struct SharedLaunch {
  std::vector<DeviceTable*> tables;
  std::vector<RowList> rows;

  bool Takes(const DeviceTable& table) const {
    return tables[0]->optimizer()->name() == table.optimizer()->name() &&
           std::find(tables.begin(), tables.end(), &table) == tables.end();
  }
};

Status Enqueue(cudaStream_t stream, const SharedLaunch& launch) {
  std::vector<DeviceCatchUp> catch_ups;
  for (size_t i = 0; i < launch.tables.size(); ++i) {
    DeviceTable* const table = launch.tables[i];
    catch_ups.push_back({table->optimizer(), table->rows(), launch.rows[i]});
  }
  SOK_RETURN_IF_ERROR(launch.tables[0]->Named(EnqueueCatchUps(stream, catch_ups)));
  for (size_t i = 0; i < launch.tables.size(); ++i) {
    DeviceTable* const table = launch.tables[i];
    const RowList& rows = launch.rows[i];
    if (rows.rows == nullptr) continue;
    SOK_RETURN_IF_ERROR(table->Named(table->changes().MarkChanged(stream, rows.rows, rows.n)));
  }
  return OkStatus();
}

}  // namespace

Status BringUpToDate(cudaStream_t stream, Span<DeviceTable* const> tables, Span<const RowList> rows) {
  std::vector<SharedLaunch> launches;
  for (int64_t i = 0; i < tables.size(); ++i) {
    if (tables[i]->is_up_to_date() || rows[i].n == 0) continue;
    auto launch = std::find_if(launches.begin(), launches.end(),
                               [&](const SharedLaunch& other) { return other.Takes(*tables[i]); });
    if (launch == launches.end()) launch = launches.insert(launches.end(), SharedLaunch());
    launch->tables.push_back(tables[i]);
    launch->rows.push_back(rows[i]);
  }
  for (const SharedLaunch& launch : launches) SOK_RETURN_IF_ERROR(Enqueue(stream, launch));
  return OkStatus();
}

// DeviceTable::BringUpToDate for several tables: rows[i] belong to tables[i]. Tables with the same optimizer
// share a launch. Returns the same errors.
Status BringUpToDate(cudaStream_t stream, Span<DeviceTable* const> tables, Span<const RowList> rows);

MergedRows::MergedRows(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables,
                       MergedGroup* group, GpuScratch* scratch)
    : call_(*call),
      memory_(memory),
      tables_(tables.begin(), tables.end()),
      group_(*group),
      scratch_(*scratch) {
  const auto has_admission = [](const DeviceTable* table) { return table->has_admission(); };
  has_filters_ = group_.training && std::any_of(tables_.begin(), tables_.end(), has_admission);
}

Status MergedRows::Enqueue() {
  SOK_RETURN_IF_ERROR(FindAgain());
  SOK_RETURN_IF_ERROR(scratch_.absent.Resize(stream(), memory_, group_.ids().max));
  SOK_RETURN_IF_ERROR(ListAbsent(stream(), call_.scratch(), group_.ids(), group_.rows.data(),
                                 {group_.words.absent_begin(), scratch_.absent.data()}));
  return EnqueueAdmission();
}

Status MergedRows::EnqueueReads() {
  only_reads_ = true;
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(group_.words.absent_begin(), 0, sizeof(int64_t) * (tables_.size() + 1), stream()),
      "cannot clear words on the device");
  return FindAgain();
}

Status MergedRows::FindAgain() {
  std::vector<RowFinder> finders;
  for (const DeviceTable* table : tables_) finders.push_back(table->finder());
  const RowFinder* device_finders = nullptr;
  scratch_.upload.Add(Span<const RowFinder>(finders), &device_finders);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, scratch_.upload.Send(stream(), call_.scratch()));

  const IdsOfGroup ids = group_.ids();
  group_.has_read_rows = false;
  SOK_RETURN_IF_ERROR(group_.rows.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(group_.words.first_unknown(), 0xff, sizeof(uint64_t), stream()),
                           "cannot clear a word on the device");
  return FindRows(stream(), ids, device_finders, group_.rows.data(), group_.words.first_unknown(),
                  only_reads_ ? group_.words.absent_begin() : nullptr);
}

Status MergedRows::AskAhead() {
  SOK_RETURN_IF_ERROR(FindAgain());
  return BringFromDisk(/*spare=*/{}, DiskUse::kAhead);
}

Outcomes MergedRows::OutcomesOfIds() const {
  return {scratch_.totals.data(), scratch_.places.data(), scratch_.outcomes.data()};
}

SomeIds MergedRows::AdmittedIds() const {
  if (has_filters_) return {group_.words.admitted_begin(), scratch_.admitted.data()};
  return {group_.words.absent_begin(), scratch_.absent.data()};
}

StatusOr<const FilterView*> MergedRows::UploadFilters(DeviceBuffer<char>* uploaded) {
  std::vector<FilterView> filters;
  for (const DeviceTable* table : tables_) filters.push_back(table->filter());
  const FilterView* device_filters = nullptr;
  scratch_.upload.Add(Span<const FilterView>(filters), &device_filters);
  SOK_ASSIGN_OR_RETURN(*uploaded, scratch_.upload.Send(stream(), call_.scratch()));
  return device_filters;
}

Status MergedRows::EnqueueAdmission() {
  if (!has_filters_) return OkStatus();
  const IdsOfGroup ids = group_.ids();
  for (ReusableArray<int32_t>* array :
       {&scratch_.admitted, &scratch_.gone, &scratch_.fresh, &scratch_.outcomes}) {
    SOK_RETURN_IF_ERROR(array->Resize(stream(), memory_, ids.max));
  }
  SOK_RETURN_IF_ERROR(scratch_.totals.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(scratch_.places.Resize(stream(), memory_, ids.max));
  DeviceBuffer<char> uploaded;
  SOK_ASSIGN_OR_RETURN(const FilterView* const filters, UploadFilters(&uploaded));

  const LookupWords& words = group_.words;
  const Outcomes outcomes = OutcomesOfIds();
  SOK_RETURN_IF_ERROR(DecideAdmission(stream(), ids, {words.absent_begin(), scratch_.absent.data()}, filters,
                                      group_.counts.data(), outcomes));
  const auto list = [&](uint32_t which, const SomeIds& some) {
    return ListOutcomes(stream(), call_.scratch(), ids, group_.rows.data(), outcomes, which, some);
  };
  SOK_RETURN_IF_ERROR(list(SetOf(Outcome::kAdmitted) | SetOf(Outcome::kAdmittedFromWaiting), AdmittedIds()));
  SOK_RETURN_IF_ERROR(list(SetOf(Outcome::kAdmittedFromWaiting), {words.gone_begin(), scratch_.gone.data()}));
  return list(SetOf(Outcome::kWaitsNew), {words.fresh_begin(), scratch_.fresh.data()});
}

Status MergedRows::NoRowFor(uint64_t u) {
  std::vector<int64_t> begin = {0};
  for (const TableOfPlan& table : group_.tables) begin.push_back(begin.back() + table.unique);
  SOK_ASSIGN_OR_RETURN(const int64_t* const key,
                       scratch_.round_trip.Fetch(stream(), group_.ids().keys + u, 1));
  return tables_[PartOf(begin.data(), num_tables(), static_cast<int64_t>(u))]->NoRowFor(*key);
}

Status MergedRows::Take(const int64_t* words) {
  const int64_t begins = num_tables() + 1;
  const auto begin_at = [&](int64_t at) { return std::vector<int64_t>(words + at, words + at + begins); };
  Found found;
  found.absent = begin_at(0);
  if (only_reads_) {
    // The words say whether each table has some: take that for their number.
    int64_t before = 0;
    for (int64_t& begin : found.absent) begin = std::exchange(before, before + begin);
  }
  const auto first_unknown = static_cast<uint64_t>(words[begins]);
  if (first_unknown != ~uint64_t{0}) return NoRowFor(first_unknown);
  found.admitted = has_filters_ ? begin_at(begins + 1) : found.absent;
  found.gone = has_filters_ ? begin_at(2 * begins + 1) : std::vector<int64_t>(begins, 0);
  found.fresh = has_filters_ ? begin_at(3 * begins + 1) : std::vector<int64_t>(begins, 0);

  group_.may_be_absent.assign(tables_.size(), 0);
  if (group_.training) SOK_RETURN_IF_ERROR(Insert(found));
  for (int t = 0; t < num_tables(); ++t) {
    const int64_t left = found.NumAbsent(t) - (group_.training ? found.NumAdmitted(t) : 0);
    group_.may_be_absent[t] = left > 0 ? 1 : 0;
    group_.tables[t].serial = tables_[t]->serial();
    group_.tables[t].dim = tables_[t]->options().dim;
  }
  if (!group_.training) {
    SOK_RETURN_IF_ERROR(BringFromDisk(/*spare=*/{}, DiskUse::kLookup));
    SOK_RETURN_IF_ERROR(BringUp());
  }
  SOK_RETURN_IF_ERROR(BringUpToDate());
  SOK_RETURN_IF_ERROR(MakeReferences());
  return group_.training ? ReadDefaults(found) : OkStatus();
}

Status MergedRows::ReadDefaults(const Found& found) {
  for (int t = 0; t < num_tables(); ++t) {
    if (!tables_[t]->options().admission.before_lookup || found.NumAdmitted(t) == 0) continue;
    group_.has_read_rows = true;
    group_.may_be_absent[t] = 1;
  }
  if (!group_.has_read_rows) return OkStatus();
  const IdsOfGroup ids = group_.ids();
  SOK_RETURN_IF_ERROR(group_.read_rows.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(group_.read_rows.data(), group_.rows.data(),
                      static_cast<size_t>(ids.max) * sizeof(int64_t), cudaMemcpyDeviceToDevice, stream()),
      "cannot copy rows on the device");
  DeviceBuffer<char> uploaded;
  SOK_ASSIGN_OR_RETURN(const FilterView* const filters, UploadFilters(&uploaded));
  const bool was_reordered = found.admitted.back() != found.absent.back();
  return sok::ReadDefaults(stream(), ids, AdmittedIds(), filters, group_.counts.data(), OutcomesOfIds(),
                           was_reordered ? scratch_.moved.data() : nullptr, group_.read_rows.data());
}

std::vector<RowList> MergedRows::RowsOfTables() const {
  std::vector<RowList> rows;
  for (const TableOfPlan& table : group_.tables) {
    rows.push_back({group_.rows.data() + table.first, 0, table.unique});
  }
  return rows;
}

std::vector<int64_t> MergedRows::SpareRows(const Found& found) const {
  std::vector<int64_t> spare;
  for (int t = 0; t < num_tables(); ++t) spare.push_back(tables_[t]->SpareFor(found.NumAdmitted(t)));
  return spare;
}

Status MergedRows::BringFromDisk(const std::vector<int64_t>& spare, DiskUse use) {
  return sok::BringFromDisk(stream(), call_.scratch(), tables_, RowsOfTables(), spare, use);
}

Status MergedRows::BringUp() {
  std::vector<NeededRows> needed;
  for (int t = 0; t < num_tables(); ++t) {
    const TableOfPlan& table = group_.tables[t];
    if (tables_[t]->tiers() == nullptr) continue;
    needed.push_back({tables_[t]->tiers(), group_.rows.data() + table.first, table.unique});
  }
  const Status status = sok::BringUp(stream(), call_.scratch(), &scratch_.upload, needed);
  // Without memory for it, rows are read where they are.
  return status.code() == StatusCode::kResourceExhausted ? OkStatus() : status;
}

Status MergedRows::BringUpToDate() {
  SOK_RETURN_IF_ERROR(sok::BringUpToDate(stream(), tables_, RowsOfTables()));
  for (int t = 0; t < num_tables(); ++t) {
    const DeviceOptimizer* const optimizer = tables_[t]->optimizer();
    group_.tables[t].current_at = optimizer == nullptr ? -1 : optimizer->version();
    if (tables_[t]->disk() != nullptr) group_.tables[t].disk_version = tables_[t]->disk()->version();
  }
  return OkStatus();
}

Status MergedRows::CheckRoom(const Found& found) const {
  for (int t = 0; t < num_tables(); ++t) {
    const int64_t present = group_.tables[t].unique - found.NumAbsent(t);
    SOK_RETURN_IF_ERROR(tables_[t]->CheckRoom(found.NumAdmitted(t), present));
  }
  return OkStatus();
}

Status MergedRows::MakeRoom(const Found& found) {
  for (int t = 0; t < num_tables(); ++t) {
    DeviceTable& table = *tables_[t];
    SOK_RETURN_IF_ERROR(table.Reserve(stream(), found.NumAdmitted(t)));
    SOK_RETURN_IF_ERROR(table.ReserveErase(stream(), table.SurplusOf(found.NumAdmitted(t))));
    if (table.waiting() == nullptr) continue;
    SOK_RETURN_IF_ERROR(table.Named(table.waiting()->Reserve(stream(), found.fresh[t + 1] - found.fresh[t],
                                                             found.gone[t + 1] - found.gone[t])));
  }
  return OkStatus();
}

Status MergedRows::ChooseEvicted(const Found& found, std::vector<EvictedRows>* evicted) {
  evicted->resize(tables_.size());
  for (int t = 0; t < num_tables(); ++t) {
    const DeviceTable& table = *tables_[t];
    const TableOfPlan& of_plan = group_.tables[t];
    EvictedRows& of_table = (*evicted)[t];
    of_table.n = table.SurplusOf(found.NumAdmitted(t));
    if (of_table.n == 0) continue;
    SOK_RETURN_IF_ERROR(
        table.Named(ListLeastUsed(stream(), call_.scratch(), tables_[t], group_.rows.data() + of_plan.first,
                                  of_plan.unique, of_table.n, &of_table.rows)));
    SOK_ASSIGN_OR_RETURN(of_table.keys,
                         table.Named(DeviceBuffer<int64_t>::Allocate(call_.scratch(), stream(), of_table.n)));
  }
  return OkStatus();
}

Status MergedRows::PrepareCommits(const Found& found, std::vector<AdmissionCommit>* commits) {
  if (!has_filters_) return OkStatus();
  for (int t = 0; t < num_tables(); ++t) {
    if (!tables_[t]->has_admission()) continue;
    const auto listed = [t](const ReusableArray<int32_t>& which, const std::vector<int64_t>& begin) {
      return ListedIds{which.data() + begin[t], begin[t + 1] - begin[t]};
    };
    FilteredLookup lookup;
    lookup.keys = group_.keys.data();
    lookup.counts = group_.counts.data();
    lookup.rows = group_.rows.data();
    lookup.outcomes = OutcomesOfIds();
    lookup.absent = listed(scratch_.absent, found.absent);
    lookup.admitted = listed(scratch_.admitted, found.admitted);
    lookup.gone = listed(scratch_.gone, found.gone);
    lookup.fresh = listed(scratch_.fresh, found.fresh);
    commits->emplace_back();
    SOK_RETURN_IF_ERROR(
        commits->back().Prepare(stream(), call_.scratch(), &scratch_.upload, lookup, tables_[t]));
  }
  return OkStatus();
}

Status MergedRows::Insert(const Found& found) {
  // All checks and allocations come first, so that nothing can fail once a table has changed: not before its
  // occurrences are counted.
  SOK_RETURN_IF_ERROR(CheckRoom(found));
  SOK_RETURN_IF_ERROR(MakeRoom(found));
  std::vector<EvictedRows> evicted;
  SOK_RETURN_IF_ERROR(ChooseEvicted(found, &evicted));
  std::vector<AdmissionCommit> commits;
  SOK_RETURN_IF_ERROR(PrepareCommits(found, &commits));
  const std::vector<int64_t> spare = SpareRows(found);
  SOK_RETURN_IF_ERROR(BringFromDisk(spare, DiskUse::kLookup));
  const auto bring_up = [&]() -> Status {
    if (found.admitted.back() > 0) SOK_RETURN_IF_ERROR(BringFromDisk(spare, DiskUse::kNew));
    return BringUp();
  };
  SOK_RETURN_IF_ERROR(InsertRows(stream(), call_.scratch(), &scratch_.upload, tables_, group_.ids(),
                                 AdmittedIds(), found.admitted, evicted, group_.rows.data(), bring_up));
  for (AdmissionCommit& commit : commits) SOK_RETURN_IF_ERROR(commit.Commit(stream()));
  for (int t = 0; t < num_tables(); ++t) {
    TableOfPlan& table = group_.tables[t];
    const int32_t* const counts = tables_[t]->counts_lookups() ? group_.counts.data() + table.first : nullptr;
    SOK_RETURN_IF_ERROR(
        tables_[t]->CountUses(stream(), group_.rows.data() + table.first, counts, table.unique));
    table.trained = table.unique - found.NumAbsent(t) + found.NumAdmitted(t);
    CountIds(t, found);
  }
  return PutRowsFirst(found);
}

void MergedRows::CountIds(int64_t t, const Found& found) {
  LookupCounts& counts = *tables_[t]->lookup_counts();
  if (!tables_[t]->represents_rows()) return;
  LookupCounts::Add(counts.distinct_ids, group_.tables[t].unique);
  LookupCounts::Add(counts.admitted_ids, found.NumAdmitted(t));
  LookupCounts::Add(counts.filtered_ids, found.NumAbsent(t) - found.NumAdmitted(t));
}

// Ids that are trained come first, so that their gradients are the first ones.
Status MergedRows::PutRowsFirst(const Found& found) {
  if (found.admitted.back() == found.absent.back()) return OkStatus();
  const IdsOfGroup ids = group_.ids();
  SOK_RETURN_IF_ERROR(scratch_.reordered_keys.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(scratch_.reordered_rows.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(scratch_.moved.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(sok::PutRowsFirst(
      stream(), call_.scratch(), ids, group_.rows.data(),
      {scratch_.reordered_keys.data(), scratch_.reordered_rows.data(), scratch_.moved.data()}));
  SOK_RETURN_IF_ERROR(
      RenumberOccurrences(stream(), scratch_.moved.data(), group_.occurrences(), group_.inverse.data()));
  std::swap(group_.keys, scratch_.reordered_keys);
  std::swap(group_.rows, scratch_.reordered_rows);
  return OkStatus();
}

Status MergedRows::MakeReferences() {
  std::vector<ColumnView<uint32_t>> states;
  for (int t = 0; t < num_tables(); ++t) {
    states.push_back(tables_[t]->states());
    group_.tables[t].num_erased = tables_[t]->num_erased();
  }
  if (std::all_of(states.begin(), states.end(), [](const auto& column) { return column.is_null(); })) {
    return OkStatus();
  }
  const ColumnView<uint32_t>* device_states = nullptr;
  scratch_.upload.Add(Span<const ColumnView<uint32_t>>(states), &device_states);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, scratch_.upload.Send(stream(), call_.scratch()));
  return sok::MakeReferences(stream(), group_.ids(), device_states, group_.rows.data());
}

}  // namespace sok
