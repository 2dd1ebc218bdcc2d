#include <algorithm>
#include <utility>

#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/sharded/messages.h"
#include "cuda/sharded/sharded_group.h"
#include "cuda/table/admit_ids.h"

namespace sok {

RouteLookups::RouteLookups(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables,
                           GpuRoutedGroup* routed, GpuScratch* scratch)
    : call_(*call),
      memory_(memory),
      tables_(tables.begin(), tables.end()),
      routed_(*routed),
      scratch_(*scratch) {}

bool RouteLookups::has_sums() const {
  return std::any_of(routed_.modes.begin(), routed_.modes.end(),
                     [](ExchangeMode mode) { return mode == ExchangeMode::kSums; });
}

// Whether the requests say how often each id of the table was looked up.
bool RouteLookups::counts(int t) const {
  return routed_.merged.training && !routed_.sums(t) && tables_[t]->counts_lookups();
}

Status RouteLookups::Route(const GroupBatch& batch, Span<const ExchangeMode> modes, const Status& status,
                           AllocateWords allocate) {
  Prepare(batch, modes);
  const Status outcome = status.ok() ? WithinMemory([&] { return RouteBatch(batch); }) : status;
  routed_.is_routed = outcome.ok();
  return outcome.ok() ? WriteRequests(allocate) : WriteErrors(outcome, allocate);
}

void RouteLookups::Prepare(const GroupBatch& batch, Span<const ExchangeMode> modes) {
  const TableOptions& options = tables_[0]->options();
  routed_.rank = options.rank;
  routed_.ranks = options.ranks;
  routed_.modes.assign(modes.begin(), modes.end());
  routed_.dims.clear();
  routed_.types.clear();
  routed_.is_replicated.clear();
  routed_.counts.clear();
  for (const DeviceTable* table : tables_) {
    const size_t t = routed_.dims.size();
    routed_.dims.push_back(table->options().dim);
    routed_.types.push_back(AnswerType(table->options().record.weights, routed_.modes[t]));
    routed_.is_replicated.push_back(table->options().placement.is_replicated() ? 1 : 0);
    routed_.counts.push_back(table->lookup_counts());
  }
  routed_.merged.training = batch.training;
  routed_.merged.sort = scratch_.routed_sort;
  if (routed_.transfers == nullptr) routed_.transfers = TakeShared(scratch_.transfers);
  for (int64_t t = 0; t < modes.size(); ++t) {
    fingerprints_.push_back(FingerprintsOf(DefinitionOf(*tables_[t], modes[t])));
  }
}

Status RouteLookups::RouteBatch(const GroupBatch& batch) {
  SOK_RETURN_IF_ERROR(CheckSummedTables(batch, routed_.modes));
  if (routed_.ranks > kMaxReceivingRanks) {
    return InvalidArgument("Lookup in embedding variable '", tables_[0]->options().name, "' over ",
                           routed_.ranks, " ranks: on a GPU there are at most ", kMaxReceivingRanks);
  }
  bool any_counts = false;
  for (int t = 0; t < routed_.num_tables(); ++t) any_counts = any_counts || counts(t);
  TableArrays arrays;
  SOK_RETURN_IF_ERROR(Upload(&arrays));
  GroupMerge merge(&call_, memory_, tables_, batch, &routed_.merged, &scratch_);
  for (;;) {
    const int64_t begins = 2 * (parts() + 1);
    SOK_RETURN_IF_ERROR(merge.Enqueue(begins, any_counts, arrays.is_merged));
    SOK_RETURN_IF_ERROR(EnqueueRoutes(arrays));
    const LookupWords& words = routed_.merged.words;
    SOK_ASSIGN_OR_RETURN(
        const int64_t* const fetched,
        scratch_.round_trip.Fetch(call_.stream(), words.report(), words.merge_size() + begins));
    SOK_ASSIGN_OR_RETURN(const bool sorts_again, merge.Take(fetched));
    if (!sorts_again) return TakeRoutes(fetched + words.merge_size());
  }
}

Status RouteLookups::Upload(TableArrays* arrays) {
  std::vector<uint8_t> is_merged;
  std::vector<OwnersOfTable> owners;
  std::vector<int64_t> boundaries;
  for (int t = 0; t < routed_.num_tables(); ++t) {
    is_merged.push_back(routed_.sums(t) ? 0 : 1);
    const KeyOwners of_table = tables_[t]->options().placement.owners(routed_.ranks);
    owners.push_back({of_table, static_cast<int64_t>(boundaries.size())});
    if (of_table.kind != PlacementKind::kRanges) continue;
    boundaries.insert(boundaries.end(), of_table.boundaries, of_table.boundaries + routed_.ranks + 1);
  }
  scratch_.upload.Add(Span<const uint8_t>(is_merged), &arrays->is_merged);
  scratch_.upload.Add(Span<const OwnersOfTable>(owners), &arrays->owners);
  scratch_.upload.Add(Span<const int64_t>(boundaries), &arrays->boundaries);
  SOK_ASSIGN_OR_RETURN(arrays->memory, scratch_.upload.Send(call_.stream(), call_.scratch()));
  return OkStatus();
}

Status RouteLookups::EnqueueRoutes(const TableArrays& arrays) {
  const cudaStream_t stream = call_.stream();
  const IdsOfGroup ids = routed_.merged.ids();
  SOK_RETURN_IF_ERROR(routed_.keys.Resize(stream, memory_, ids.max));
  SOK_RETURN_IF_ERROR(routed_.number.Resize(stream, memory_, ids.max));
  SOK_RETURN_IF_ERROR(routed_.moved.Resize(stream, memory_, ids.max));
  const int32_t* const id_counts = routed_.merged.counts.data();
  if (id_counts != nullptr) SOK_RETURN_IF_ERROR(routed_.id_counts.Resize(stream, memory_, ids.max));
  RoutedIds routed;
  routed.begin = device_ids_begin();
  routed.keys = routed_.keys.data();
  routed.number = routed_.number.data();
  routed.moved = routed_.moved.data();
  routed.counts = id_counts == nullptr ? nullptr : routed_.id_counts.data();
  SOK_RETURN_IF_ERROR(RouteIds(stream, call_.scratch(), ids, arrays.owners, arrays.boundaries, id_counts,
                               routed_.ranks, routed));
  if (has_sums()) return EnqueueSums(routed);
  return CudaStatus(cudaMemsetAsync(device_sum_begin(), 0, (parts() + 1) * sizeof(int64_t), stream),
                    "cannot clear words on the device");
}

Status RouteLookups::EnqueueSums(const RoutedIds& routed) {
  const cudaStream_t stream = call_.stream();
  const IdsOfGroup ids = routed_.merged.ids();
  std::vector<SummedBags> bags(tables_.size());
  for (const BagsOfLookup& lookup : routed_.merged.bags.lookups()) {
    if (routed_.sums(lookup.table)) bags[lookup.table] = {lookup.bag_begin, lookup.num_bags};
  }
  const SummedBags* device_bags = nullptr;
  scratch_.upload.Add(Span<const SummedBags>(bags), &device_bags);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, scratch_.upload.Send(stream, call_.scratch()));
  SOK_RETURN_IF_ERROR(routed_.bags.Resize(stream, memory_, ids.max));
  SOK_RETURN_IF_ERROR(routed_.lengths.Resize(stream, memory_, ids.max));
  return FindRoutedRows(stream, call_.scratch(), ids, routed, routed_.merged.positions.data(), device_bags,
                        routed_.ranks, {device_sum_begin(), routed_.bags.data(), routed_.lengths.data()});
}

Status RouteLookups::TakeRoutes(const int64_t* begins) {
  const cudaStream_t stream = call_.stream();
  scratch_.routed_sort = routed_.merged.sort;
  for (int t = 0; t < routed_.num_tables(); ++t) routed_.merged.tables[t].dim = routed_.dims[t];
  routed_.ids_begin.assign(begins, begins + parts() + 1);
  routed_.sum_begin.assign(begins + parts() + 1, begins + 2 * (parts() + 1));
  SOK_RETURN_IF_ERROR(RenumberOccurrences(stream, routed_.moved.data(), routed_.merged.occurrences(),
                                          routed_.merged.inverse.data()));
  const int64_t ids = routed_.ids_begin.back();
  SOK_RETURN_IF_ERROR(routed_.received_ids.Resize(stream, memory_, ids));
  SOK_RETURN_IF_ERROR(NumberReceivedRows(stream, device_ids_begin(), parts(), routed_.ranks, ids,
                                         routed_.received_ids.data()));
  if (!has_sums()) return OkStatus();
  const int64_t sums = routed_.sum_begin.back();
  SOK_RETURN_IF_ERROR(routed_.received_sums.Resize(stream, memory_, sums));
  return NumberReceivedRows(stream, device_sum_begin(), parts(), routed_.ranks, sums,
                            routed_.received_sums.data());
}

Status RouteLookups::WriteErrors(const Status& status, AllocateWords allocate) {
  const std::vector<int64_t> sizes(static_cast<size_t>(routed_.ranks), MessageWords(status, 0));
  int64_t* const words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();
  MessageWriter writer;
  for (int64_t* const start : MessageStarts(routed_.rank, sizes, words)) {
    writer.AddHeader({MessageKind::kRequest, status, routed_.merged.training ? 1 : 0}, start);
  }
  return writer.Send(&call_, &scratch_.upload);
}

RequestEntry RouteLookups::EntryFor(int t, int r) const {
  RequestEntry entry;
  entry.fingerprints = fingerprints_[t];
  entry.ids = routed_.ids_for(t, r).size();
  entry.lengths = routed_.sums(t) ? routed_.rows_for(t, r).size() : 0;
  entry.counts = counts(t) ? entry.ids : 0;
  if (routed_.rank != kNoRank || !routed_.merged.training || r != 0) return entry;
  for (const BagsOfLookup& lookup : routed_.merged.bags.lookups()) {
    if (lookup.table == t) entry.occurrences += lookup.end - lookup.begin;
  }
  return entry;
}

Status RouteLookups::WriteRequests(AllocateWords allocate) {
  const int num_tables = routed_.num_tables();
  std::vector<int64_t> sizes;
  for (int r = 0; r < routed_.ranks; ++r) {
    int64_t payload = kRequestEntryWords * num_tables;
    for (int t = 0; t < num_tables; ++t) payload += EntryFor(t, r).data_words();
    sizes.push_back(MessageWords(OkStatus(), payload));
  }
  int64_t* const words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();
  const std::vector<int64_t*> starts = MessageStarts(routed_.rank, sizes, words);
  MessageWriter writer;
  std::vector<int64_t> entries(static_cast<size_t>(kRequestEntryWords * num_tables));
  for (int r = 0; r < routed_.ranks; ++r) {
    int64_t* const payload =
        writer.AddHeader({MessageKind::kRequest, OkStatus(), routed_.merged.training ? 1 : 0}, starts[r]);
    int64_t* next = payload + kRequestEntryWords * num_tables;
    for (int t = 0; t < num_tables; ++t) {
      const RequestEntry entry = EntryFor(t, r);
      WriteEntry(entry, entries.data() + kRequestEntryWords * t);
      const int64_t first_id = routed_.ids_for(t, r).begin;
      if (entry.ids > 0) next = writer.Copy(routed_.keys.data() + first_id, entry.ids, next);
      const int64_t first_sum = routed_.rows_for(t, r).begin;
      if (entry.lengths > 0) next = writer.Copy(routed_.lengths.data() + first_sum, entry.lengths, next);
      if (entry.counts > 0) next = writer.Copy(routed_.id_counts.data() + first_id, entry.counts, next);
    }
    writer.Add(entries, payload);
  }
  if (routed_.merged.training) CountRequests();
  return writer.Send(&call_, &scratch_.upload);
}

void RouteLookups::CountRequests() const {
  for (int t = 0; t < routed_.num_tables(); ++t) {
    int64_t words = 0;
    for (int r = 0; r < routed_.ranks; ++r) {
      if (r != routed_.rank) words += kRequestEntryWords + EntryFor(t, r).data_words();
    }
    LookupCounts::Add(routed_.counts[t]->bytes_sent, words * static_cast<int64_t>(sizeof(int64_t)));
  }
}

}  // namespace sok
