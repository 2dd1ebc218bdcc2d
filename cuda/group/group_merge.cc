#include "cuda/group/group_merge.h"

#include "cuda/base/device_buffer.h"
#include "cuda/dedup/dedup.h"
#include "cuda/pooling/pool.h"

namespace sok {

void MergedGroup::TakeUniqueBegin(const int64_t* begin) {
  for (int t = 0; t < num_tables(); ++t) {
    tables[t].first = begin[t];
    tables[t].unique = begin[t + 1] - begin[t];
  }
  unique_count = begin[num_tables()];
}

Status MergedGroup::CopyReferences(cudaStream_t stream, int t, int64_t* references) const {
  const TableOfPlan& table = tables[static_cast<size_t>(t)];
  if (table.trained == 0) return OkStatus();
  return CudaStatus(
      cudaMemcpyAsync(references, rows.data() + table.first,
                      static_cast<size_t>(table.trained) * sizeof(int64_t), cudaMemcpyDeviceToDevice, stream),
      "cannot copy references on the device");
}

GroupMerge::GroupMerge(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables,
                       const GroupBatch& batch, MergedBags* group, GpuScratch* scratch)
    : call_(*call), memory_(memory), batch_(batch), group_(*group), scratch_(*scratch) {
  for (const DeviceTable* table : tables) names_.push_back(table->options().name);
}

BagsInput GroupMerge::Input() const {
  BagsInput input;
  input.tables = names_;
  input.specs = batch_.specs;
  input.inputs = batch_.inputs;
  input.sort = group_.sort;
  return input;
}

Status GroupMerge::EnqueueBags(int64_t more_words) {
  const cudaStream_t stream = call_.stream();
  group_.training = batch_.training;
  group_.tables.assign(names_.size(), TableOfPlan());
  if (static_cast<int64_t>(group_.sort.size()) != batch_.specs.size()) {
    group_.sort.assign(batch_.specs.size(), 0);
  }
  const BagsInput input = Input();
  const int64_t report = GroupBags::report_size(input);
  const int64_t words = LookupWords(nullptr, report, group_.num_tables()).merge_size() + more_words;
  SOK_RETURN_IF_ERROR(group_.word_memory.Resize(stream, memory_, words));
  group_.words = LookupWords(group_.word_memory.data(), report, group_.num_tables());
  SOK_RETURN_IF_ERROR(
      group_.bags.Build(stream, memory_, call_.scratch(), &scratch_.upload, input, group_.words.report()));
  group_.unique_count = group_.bags.num_ids();
  return OkStatus();
}

Status GroupMerge::Enqueue(int64_t more_words, bool counts, const uint8_t* is_merged) {
  SOK_RETURN_IF_ERROR(EnqueueBags(more_words));
  group_.is_merged = true;
  const cudaStream_t stream = call_.stream();
  const int64_t n = group_.bags.num_ids();
  SOK_RETURN_IF_ERROR(group_.inverse.Resize(stream, memory_, n));
  SOK_RETURN_IF_ERROR(group_.positions.Resize(stream, memory_, n));
  SOK_RETURN_IF_ERROR(group_.keys.Resize(stream, memory_, n));
  if (counts) SOK_RETURN_IF_ERROR(group_.counts.Resize(stream, memory_, n));
  UniqueIds unique;
  unique.begin = group_.words.unique_begin();
  unique.inverse = group_.inverse.data();
  unique.position = group_.positions.data();
  unique.keys = group_.keys.data();
  unique.counts = counts ? group_.counts.data() : nullptr;
  return Dedup(stream, call_.scratch(),
               {group_.bags.keys(), group_.bags.table_begin(), group_.num_tables(), n, is_merged}, unique);
}

Status GroupMerge::EnqueueUnmerged(int64_t more_words) {
  SOK_RETURN_IF_ERROR(EnqueueBags(more_words));
  group_.is_merged = false;
  group_.read_begin = group_.bags.table_begin();
  group_.read_keys = group_.bags.keys();
  return OkStatus();
}

StatusOr<bool> GroupMerge::Take(const int64_t* words) {
  const BagsInput input = Input();
  const int64_t* const unique_begin = words + GroupBags::report_size(input);
  // If the report has an error, TakeReport fetches more and overwrites the words: copy what is needed first.
  const std::vector<int64_t> begin(unique_begin, unique_begin + names_.size() + 1);
  SOK_RETURN_IF_ERROR(group_.bags.TakeReport(call_.stream(), &scratch_.round_trip, input, words));
  if (group_.bags.needs_sort()) {
    for (size_t l = 0; l < group_.sort.size(); ++l) {
      group_.sort[l] |= group_.bags.lookups()[l].unsorted ? 1 : 0;
    }
    return true;
  }
  group_.occurrence_begin = group_.bags.host_table_begin();
  group_.TakeUniqueBegin(group_.is_merged ? begin.data() : group_.occurrence_begin.data());
  return false;
}

OccurrenceRows OccurrenceRowsOf(const MergedGroup& group, int t, const DeviceTable& table,
                                const int64_t* keys) {
  OccurrenceRows ids;
  if (group.is_merged) ids.inverse = group.inverse.data();
  ids.rows = group.rows_to_read();
  ids.table = table.rows();
  ids.may_be_absent = group.may_be_absent[static_cast<size_t>(t)] != 0;
  ids.keys = keys;
  ids.initial = table.initializer();
  const Admission& admission = table.options().admission;
  if (admission.filters()) {
    ids.initial = Initializer{InitializerKind::kConstant, admission.default_value, 0.0f, 0};
  }
  return ids;
}

BagsView BagsViewOf(const GroupBags& group, size_t l) {
  const BagsOfLookup& lookup = group.lookups()[l];
  BagsView bags;
  bags.begin = lookup.bag_begin;
  if (lookup.weighted) bags.weights = group.weights();
  bags.first = lookup.begin;
  bags.bags = lookup.pooled ? lookup.num_bags : lookup.end - lookup.begin;
  bags.combiner = lookup.combiner;
  static_assert(kIdsOfLongBag == kLongBag);
  if (lookup.has_long_bag) bags.occurrences = static_cast<int32_t>(lookup.end - lookup.begin);
  return bags;
}

}  // namespace sok
