#include "cuda/group/group_lookup.h"

#include <algorithm>

#include "cuda/group/gpu_call.h"
#include "cuda/group/group_merge.h"
#include "cuda/group/merged_rows.h"
#include "cuda/pooling/pool.h"

namespace sok {

GpuGroupLookup::GpuGroupLookup(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables,
                               GpuGroupPlan* plan, GpuScratch* scratch)
    : call_(*call),
      memory_(memory),
      tables_(tables.begin(), tables.end()),
      plan_(*plan),
      scratch_(*scratch) {}

bool GpuGroupLookup::OnlyReads(const GroupBatch& batch) const {
  return !batch.training && std::all_of(tables_.begin(), tables_.end(), [](const DeviceTable* t) {
    return t->is_up_to_date() && t->tiers() == nullptr;
  });
}

Status GpuGroupLookup::EnqueueMerge(const GroupBatch& batch, GroupMerge* merge) {
  const bool counts = batch.training && std::any_of(tables_.begin(), tables_.end(),
                                                    [](const DeviceTable* t) { return t->counts_lookups(); });
  return merge->Enqueue(LookupWords(nullptr, 0, num_tables()).find_size(/*has_filters=*/true), counts);
}

Status GpuGroupLookup::Lookup(const GroupBatch& batch, Span<const OutputRows> outputs) {
  TablesAtWork at_work(stream(), &call_.executor(), tables_);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  plan_.training = batch.training;
  const bool only_reads = OnlyReads(batch);
  GroupMerge merge(&call_, memory_, tables_, batch, &plan_, &scratch_);
  MergedRows rows = RowsOfPlan();
  bool sorts_again = true;
  const int64_t* words = nullptr;
  while (sorts_again) {
    SOK_RETURN_IF_ERROR(only_reads ? merge.EnqueueUnmerged(rows.find_words()) : EnqueueMerge(batch, &merge));
    SOK_RETURN_IF_ERROR(only_reads ? rows.EnqueueReads() : rows.Enqueue());
    SOK_ASSIGN_OR_RETURN(words, scratch_.round_trip.Fetch(stream(), plan_.words.report(),
                                                          plan_.words.merge_size() + rows.find_words()));
    scratch_.upload.HasWaited(stream());
    SOK_ASSIGN_OR_RETURN(sorts_again, merge.Take(words));
  }
  SOK_RETURN_IF_ERROR(TakeFound(&rows, words + plan_.words.merge_size()));
  return WriteOutputs(outputs);
}

Status GpuGroupLookup::Merge(const GroupBatch& batch) {
  GroupMerge merge(&call_, memory_, tables_, batch, &plan_, &scratch_);
  bool sorts_again = true;
  while (sorts_again) {
    SOK_RETURN_IF_ERROR(EnqueueMerge(batch, &merge));
    SOK_ASSIGN_OR_RETURN(const int64_t* const words,
                         scratch_.round_trip.Fetch(stream(), plan_.words.report(), plan_.words.merge_size()));
    SOK_ASSIGN_OR_RETURN(sorts_again, merge.Take(words));
  }
  return AskAhead();
}

Status GpuGroupLookup::AskAhead() {
  const auto asks = [](const DeviceTable* table) {
    const MutexLock lock(table->mutex());
    return table->disk() != nullptr && table->disk()->file().asks_ahead();
  };
  if (std::none_of(tables_.begin(), tables_.end(), asks)) return OkStatus();
  TablesAtWork at_work(stream(), &call_.executor(), tables_);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  return RowsOfPlan().AskAhead();
}

Status GpuGroupLookup::Read(Span<const OutputRows> outputs) {
  TablesAtWork at_work(stream(), &call_.executor(), tables_);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  MergedRows rows = RowsOfPlan();
  SOK_RETURN_IF_ERROR(rows.Enqueue());
  SOK_ASSIGN_OR_RETURN(const int64_t* const found,
                       scratch_.round_trip.Fetch(stream(), plan_.words.absent_begin(), rows.find_words()));
  SOK_RETURN_IF_ERROR(TakeFound(&rows, found));
  return WriteOutputs(outputs);
}

Status GpuGroupLookup::TakeFound(MergedRows* rows, const int64_t* words) {
  SOK_RETURN_IF_ERROR(rows->Take(words));
  if (!plan_.training) return OkStatus();
  for (int t = 0; t < num_tables(); ++t) {
    LookupCounts::Add(tables_[t]->lookup_counts()->ids, plan_.occurrences(t));
  }
  return OkStatus();
}

Status GpuGroupLookup::WriteOutputs(Span<const OutputRows> outputs) {
  std::vector<LookupOutput> work;
  work.reserve(plan_.bags.lookups().size());
  for (size_t l = 0; l < plan_.bags.lookups().size(); ++l) {
    const int t = plan_.bags.lookups()[l].table;
    work.push_back(
        {OccurrenceRowsOf(plan_, t, *tables_[t], plan_.bags.keys()), BagsViewOf(plan_.bags, l), outputs[l]});
  }
  return EnqueueOutputs(stream(), work);
}

}  // namespace sok
