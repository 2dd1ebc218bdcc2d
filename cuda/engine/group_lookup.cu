#include <algorithm>
#include <utility>

#include "cuda/base/cuda_status.h"
#include "cuda/base/parts.h"
#include "cuda/dedup/dedup.h"
#include "cuda/engine/group_lookup.h"
#include "cuda/engine/plan_views.h"
#include "cuda/engine/tables_at_work.h"
#include "cuda/pooling/pool.h"
#include "cuda/table/commit_admission.h"
#include "cuda/table/find_rows.h"
#include "cuda/table/give_rows.h"
#include "cuda/table/insert_rows.h"
#include "cuda/table/least_used.h"
#include "cuda/table/references.h"

namespace sok {

GroupLookup::GroupLookup(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables,
                         GpuGroupPlan* plan, GpuScratch* scratch)
    : call_(*call), memory_(memory), tables_(tables.begin(), tables.end()), plan_(*plan), scratch_(*scratch) {
  for (const DeviceTable* table : tables_) names_.push_back(table->options().name);
}

BagsInput GroupLookup::InputOf(const GroupBatch& batch) const {
  BagsInput input;
  input.tables = names_;
  input.specs = batch.specs;
  input.inputs = batch.inputs;
  input.sort = plan_.sort;
  return input;
}

Status GroupLookup::Lookup(const GroupBatch& batch, Span<const OutputRows> outputs) {
  TablesAtWork at_work(stream(), tables_);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  bool sorts_again = true;
  const int64_t* words = nullptr;
  while (sorts_again) {
    SOK_RETURN_IF_ERROR(EnqueueMerge(batch));
    SOK_RETURN_IF_ERROR(EnqueueFind());
    SOK_RETURN_IF_ERROR(EnqueueAdmission());
    const StatusOr<const int64_t*> fetched =
        scratch_.round_trip.Fetch(stream(), plan_.words.report(), plan_.words.size(has_filters_));
    SOK_RETURN_IF_ERROR(fetched.status());
    words = fetched.value();
    const StatusOr<bool> taken = TakeMerged(batch, words);
    SOK_RETURN_IF_ERROR(taken.status());
    sorts_again = taken.value();
  }
  SOK_RETURN_IF_ERROR(TakeFound(words + plan_.words.merge_size()));
  return WriteOutputs(outputs);
}

Status GroupLookup::Merge(const GroupBatch& batch) {
  bool sorts_again = true;
  while (sorts_again) {
    SOK_RETURN_IF_ERROR(EnqueueMerge(batch));
    const StatusOr<const int64_t*> words =
        scratch_.round_trip.Fetch(stream(), plan_.words.report(), plan_.words.merge_size());
    SOK_RETURN_IF_ERROR(words.status());
    const StatusOr<bool> taken = TakeMerged(batch, words.value());
    SOK_RETURN_IF_ERROR(taken.status());
    sorts_again = taken.value();
  }
  return OkStatus();
}

Status GroupLookup::Read(Span<const OutputRows> outputs) {
  TablesAtWork at_work(stream(), tables_);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  SOK_RETURN_IF_ERROR(EnqueueFind());
  SOK_RETURN_IF_ERROR(EnqueueAdmission());
  const StatusOr<const int64_t*> found =
      scratch_.round_trip.Fetch(stream(), plan_.words.absent_begin(), plan_.words.find_size(has_filters_));
  SOK_RETURN_IF_ERROR(found.status());
  SOK_RETURN_IF_ERROR(TakeFound(found.value()));
  return WriteOutputs(outputs);
}

Status GroupLookup::EnqueueMerge(const GroupBatch& batch) {
  plan_.training = batch.training;
  plan_.tables.assign(tables_.size(), TableOfPlan());
  if (static_cast<int64_t>(plan_.sort.size()) != batch.specs.size()) plan_.sort.assign(batch.specs.size(), 0);
  const BagsInput input = InputOf(batch);
  const int64_t report = GroupBags::report_size(input);
  const int64_t words = LookupWords(nullptr, report, num_tables()).size(/*has_filters=*/true);
  SOK_RETURN_IF_ERROR(plan_.word_memory.Resize(stream(), memory_, words));
  plan_.words = LookupWords(plan_.word_memory.data(), report, num_tables());
  SOK_RETURN_IF_ERROR(plan_.bags.Build(stream(), memory_, &scratch_.upload, input, plan_.words.report()));

  const int64_t n = plan_.bags.num_ids();
  plan_.unique_count = n;
  SOK_RETURN_IF_ERROR(plan_.inverse.Resize(stream(), memory_, n));
  SOK_RETURN_IF_ERROR(plan_.positions.Resize(stream(), memory_, n));
  SOK_RETURN_IF_ERROR(plan_.keys.Resize(stream(), memory_, n));
  const bool counts = batch.training && std::any_of(tables_.begin(), tables_.end(),
                                                    [](const DeviceTable* t) { return t->counts_lookups(); });
  if (counts) SOK_RETURN_IF_ERROR(plan_.counts.Resize(stream(), memory_, n));
  UniqueIds unique;
  unique.begin = plan_.words.unique_begin();
  unique.inverse = plan_.inverse.data();
  unique.position = plan_.positions.data();
  unique.keys = plan_.keys.data();
  unique.counts = counts ? plan_.counts.data() : nullptr;
  return Dedup(stream(), call_.scratch(), {plan_.bags.keys(), plan_.bags.table_begin(), num_tables(), n},
               unique);
}

StatusOr<bool> GroupLookup::TakeMerged(const GroupBatch& batch, const int64_t* words) {
  const BagsInput input = InputOf(batch);
  const int64_t* const unique_begin = words + GroupBags::report_size(input);
  // The report's errors make it fetch more: what is needed of the words is taken first.
  const std::vector<int64_t> begin(unique_begin, unique_begin + num_tables() + 1);
  SOK_RETURN_IF_ERROR(plan_.bags.TakeReport(stream(), &scratch_.round_trip, input, words));
  if (plan_.bags.needs_sort()) {
    for (size_t l = 0; l < plan_.sort.size(); ++l) plan_.sort[l] |= plan_.bags.lookups()[l].unsorted ? 1 : 0;
    return true;
  }
  plan_.unique_count = begin.back();
  plan_.occurrences = plan_.bags.host_table_begin().back();
  for (int t = 0; t < num_tables(); ++t) {
    TableOfPlan& table = plan_.tables[t];
    table.serial = tables_[t]->serial();
    table.dim = tables_[t]->options().dim;
    table.first = begin[t];
    table.unique = begin[t + 1] - begin[t];
  }
  return false;
}

Status GroupLookup::EnqueueFind() {
  std::vector<RowFinder> finders;
  for (const DeviceTable* table : tables_) finders.push_back(table->finder());
  const RowFinder* device_finders = nullptr;
  scratch_.upload.Add(Span<const RowFinder>(finders), &device_finders);
  const StatusOr<DeviceBuffer<char>> uploaded = scratch_.upload.Send(stream(), call_.scratch());
  SOK_RETURN_IF_ERROR(uploaded.status());

  const IdsOfGroup ids = plan_.ids();
  SOK_RETURN_IF_ERROR(plan_.rows.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(scratch_.absent.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(plan_.words.first_unknown(), 0xff, sizeof(uint64_t), stream()),
                           "cannot clear a word on the device");
  SOK_RETURN_IF_ERROR(
      FindRows(stream(), ids, device_finders, plan_.rows.data(), plan_.words.first_unknown()));
  return ListAbsent(stream(), call_.scratch(), ids, plan_.rows.data(),
                    {plan_.words.absent_begin(), scratch_.absent.data()});
}

Outcomes GroupLookup::OutcomesOfIds() const {
  return {scratch_.totals.data(), scratch_.places.data(), scratch_.outcomes.data()};
}

SomeIds GroupLookup::AdmittedIds() const {
  if (has_filters_) return {plan_.words.admitted_begin(), scratch_.admitted.data()};
  return {plan_.words.absent_begin(), scratch_.absent.data()};
}

Status GroupLookup::EnqueueAdmission() {
  has_filters_ = plan_.training && std::any_of(tables_.begin(), tables_.end(), [](const DeviceTable* table) {
                   return table->has_admission();
                 });
  if (!has_filters_) return OkStatus();
  const IdsOfGroup ids = plan_.ids();
  for (ReusableArray<int32_t>* array :
       {&scratch_.admitted, &scratch_.gone, &scratch_.fresh, &scratch_.outcomes}) {
    SOK_RETURN_IF_ERROR(array->Resize(stream(), memory_, ids.max));
  }
  SOK_RETURN_IF_ERROR(scratch_.totals.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(scratch_.places.Resize(stream(), memory_, ids.max));
  std::vector<FilterView> filters;
  for (const DeviceTable* table : tables_) filters.push_back(table->filter());
  const FilterView* device_filters = nullptr;
  scratch_.upload.Add(Span<const FilterView>(filters), &device_filters);
  const StatusOr<DeviceBuffer<char>> uploaded = scratch_.upload.Send(stream(), call_.scratch());
  SOK_RETURN_IF_ERROR(uploaded.status());

  const LookupWords& words = plan_.words;
  const Outcomes outcomes = OutcomesOfIds();
  SOK_RETURN_IF_ERROR(DecideAdmission(stream(), ids, {words.absent_begin(), scratch_.absent.data()},
                                      device_filters, plan_.counts.data(), outcomes));
  const auto list = [&](uint32_t which, const SomeIds& some) {
    return ListOutcomes(stream(), call_.scratch(), ids, plan_.rows.data(), outcomes, which, some);
  };
  SOK_RETURN_IF_ERROR(list(SetOf(Outcome::kAdmitted) | SetOf(Outcome::kAdmittedFromWaiting), AdmittedIds()));
  SOK_RETURN_IF_ERROR(list(SetOf(Outcome::kAdmittedFromWaiting), {words.gone_begin(), scratch_.gone.data()}));
  return list(SetOf(Outcome::kWaitsNew), {words.fresh_begin(), scratch_.fresh.data()});
}

Status GroupLookup::NoRowFor(uint64_t u) {
  std::vector<int64_t> begin = {0};
  for (const TableOfPlan& table : plan_.tables) begin.push_back(begin.back() + table.unique);
  const StatusOr<const int64_t*> key = scratch_.round_trip.Fetch(stream(), plan_.keys.data() + u, 1);
  SOK_RETURN_IF_ERROR(key.status());
  return tables_[PartOf(begin.data(), num_tables(), static_cast<int64_t>(u))]->NoRowFor(*key.value());
}

Status GroupLookup::TakeFound(const int64_t* words) {
  const int64_t begins = num_tables() + 1;
  const auto begin_at = [&](int64_t at) { return std::vector<int64_t>(words + at, words + at + begins); };
  Found found;
  found.absent = begin_at(0);
  const auto first_unknown = static_cast<uint64_t>(words[begins]);
  if (first_unknown != ~uint64_t{0}) return NoRowFor(first_unknown);
  found.admitted = has_filters_ ? begin_at(begins + 1) : found.absent;
  found.gone = has_filters_ ? begin_at(2 * begins + 1) : std::vector<int64_t>(begins, 0);
  found.fresh = has_filters_ ? begin_at(3 * begins + 1) : std::vector<int64_t>(begins, 0);

  plan_.may_be_absent.assign(tables_.size(), 0);
  if (plan_.training) SOK_RETURN_IF_ERROR(Insert(found));
  for (int t = 0; t < num_tables(); ++t) {
    const int64_t left = found.NumAbsent(t) - (plan_.training ? found.NumAdmitted(t) : 0);
    plan_.may_be_absent[t] = left > 0 ? 1 : 0;
    const TableOfPlan& table = plan_.tables[t];
    SOK_RETURN_IF_ERROR(
        tables_[t]->BringUpToDate(stream(), {plan_.rows.data() + table.first, 0, table.unique}));
  }
  return MakeReferences();
}

// All checks and all memory come first, so that nothing can fail once rows are on their way out.
Status GroupLookup::MakeRoom(const Found& found) {
  for (int t = 0; t < num_tables(); ++t) {
    const int64_t present = plan_.tables[t].unique - found.NumAbsent(t);
    SOK_RETURN_IF_ERROR(tables_[t]->CheckRoom(found.NumAdmitted(t), present));
  }
  for (int t = 0; t < num_tables(); ++t) {
    DeviceTable& table = *tables_[t];
    SOK_RETURN_IF_ERROR(table.Reserve(stream(), found.NumAdmitted(t)));
    SOK_RETURN_IF_ERROR(table.ReserveErase(stream(), table.SurplusOf(found.NumAdmitted(t))));
    if (table.waiting() == nullptr) continue;
    SOK_RETURN_IF_ERROR(table.Named(table.waiting()->Reserve(stream(), found.fresh[t + 1] - found.fresh[t],
                                                             found.gone[t + 1] - found.gone[t])));
  }
  for (int t = 0; t < num_tables(); ++t) {
    const TableOfPlan& of_plan = plan_.tables[t];
    const int64_t surplus = tables_[t]->SurplusOf(found.NumAdmitted(t));
    if (surplus == 0) continue;
    DeviceBuffer<int64_t> going;
    SOK_RETURN_IF_ERROR(tables_[t]->Named(
        ListLeastUsed(stream(), call_.scratch(), tables_[t], plan_.rows.data() + of_plan.first,
                      of_plan.unique, of_plan.unique - found.NumAbsent(t), surplus, &going)));
    SOK_RETURN_IF_ERROR(tables_[t]->EraseRowsOf(stream(), call_.scratch(), going.data(), surplus));
  }
  return OkStatus();
}

Status GroupLookup::CommitFilters(const Found& found) {
  if (!has_filters_) return OkStatus();
  for (int t = 0; t < num_tables(); ++t) {
    if (!tables_[t]->has_admission()) continue;
    const auto listed = [t](const ReusableArray<int32_t>& which, const std::vector<int64_t>& begin) {
      return ListedIds{which.data() + begin[t], begin[t + 1] - begin[t]};
    };
    FilteredLookup lookup;
    lookup.keys = plan_.keys.data();
    lookup.counts = plan_.counts.data();
    lookup.rows = plan_.rows.data();
    lookup.outcomes = OutcomesOfIds();
    lookup.absent = listed(scratch_.absent, found.absent);
    lookup.admitted = listed(scratch_.admitted, found.admitted);
    lookup.gone = listed(scratch_.gone, found.gone);
    lookup.fresh = listed(scratch_.fresh, found.fresh);
    SOK_RETURN_IF_ERROR(CommitAdmission(stream(), call_.scratch(), &scratch_.upload, lookup, tables_[t]));
  }
  return OkStatus();
}

Status GroupLookup::Insert(const Found& found) {
  SOK_RETURN_IF_ERROR(MakeRoom(found));
  SOK_RETURN_IF_ERROR(InsertRows(stream(), call_.scratch(), &scratch_.upload, tables_, plan_.ids(),
                                 AdmittedIds(), found.admitted, plan_.rows.data()));
  SOK_RETURN_IF_ERROR(CommitFilters(found));
  for (int t = 0; t < num_tables(); ++t) {
    TableOfPlan& table = plan_.tables[t];
    const int32_t* const counts = tables_[t]->counts_lookups() ? plan_.counts.data() + table.first : nullptr;
    SOK_RETURN_IF_ERROR(
        tables_[t]->CountUses(stream(), plan_.rows.data() + table.first, counts, table.unique));
    table.trained = table.unique - found.NumAbsent(t) + found.NumAdmitted(t);
    CountLookup(t, found);
  }
  return PutRowsFirst(found);
}

void GroupLookup::CountLookup(int64_t t, const Found& found) {
  LookupCounts& counts = *tables_[t]->lookup_counts();
  const std::vector<int64_t>& table_begin = plan_.bags.host_table_begin();
  LookupCounts::Add(counts.ids, table_begin[t + 1] - table_begin[t]);
  if (!tables_[t]->represents_rows()) return;
  LookupCounts::Add(counts.distinct_ids, plan_.tables[t].unique);
  LookupCounts::Add(counts.admitted_ids, found.NumAdmitted(t));
  LookupCounts::Add(counts.filtered_ids, found.NumAbsent(t) - found.NumAdmitted(t));
}

// Ids that are trained come first, so that their gradients are the first ones.
Status GroupLookup::PutRowsFirst(const Found& found) {
  if (found.admitted.back() == found.absent.back()) return OkStatus();
  const IdsOfGroup ids = plan_.ids();
  SOK_RETURN_IF_ERROR(scratch_.reordered_keys.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(scratch_.reordered_rows.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(scratch_.moved.Resize(stream(), memory_, ids.max));
  SOK_RETURN_IF_ERROR(sok::PutRowsFirst(
      stream(), call_.scratch(), ids, plan_.rows.data(),
      {scratch_.reordered_keys.data(), scratch_.reordered_rows.data(), scratch_.moved.data()}));
  SOK_RETURN_IF_ERROR(
      RenumberOccurrences(stream(), scratch_.moved.data(), plan_.occurrences, plan_.inverse.data()));
  std::swap(plan_.keys, scratch_.reordered_keys);
  std::swap(plan_.rows, scratch_.reordered_rows);
  return OkStatus();
}

Status GroupLookup::MakeReferences() {
  std::vector<const uint32_t*> states;
  for (int t = 0; t < num_tables(); ++t) {
    states.push_back(tables_[t]->states());
    plan_.tables[t].num_erased = tables_[t]->num_erased();
  }
  if (std::all_of(states.begin(), states.end(), [](const uint32_t* s) { return s == nullptr; })) {
    return OkStatus();
  }
  const uint32_t* const* device_states = nullptr;
  scratch_.upload.Add(Span<const uint32_t* const>(states), &device_states);
  const StatusOr<DeviceBuffer<char>> uploaded = scratch_.upload.Send(stream(), call_.scratch());
  SOK_RETURN_IF_ERROR(uploaded.status());
  return sok::MakeReferences(stream(), plan_.ids(), device_states, plan_.rows.data());
}

Status GroupLookup::WriteOutputs(Span<const OutputRows> outputs) {
  std::vector<LookupOutput> work;
  for (size_t l = 0; l < plan_.bags.lookups().size(); ++l) {
    const DeviceTable& table = *tables_[plan_.bags.lookups()[l].table];
    work.push_back({OccurrenceRowsOf(plan_, l, table), BagsViewOf(plan_, l), outputs[l]});
  }
  return EnqueueOutputs(stream(), work);
}

}  // namespace sok
