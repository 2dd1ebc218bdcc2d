#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/messages/message.h"
#include "cuda/base/device_buffer.h"
#include "cuda/dedup/dedup.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_merge.h"
#include "cuda/pooling/lookup_gradients.h"
#include "cuda/pooling/lookup_view.h"
#include "cuda/pooling/pool.h"
#include "cuda/sharded/message_kernels.h"
#include "cuda/sharded/messages.h"
#include "cuda/sharded/route_ids.h"
#include "cuda/sharded/sharded_group.h"
#include "cuda/table/device_table.h"

namespace sok {

// The rows and sums that the owners answered with.

class ReceivedRows {
 public:
  // Reads the answers of all owners. Returns the error if any rank had one; `tables` may then be empty.
  // FailedPrecondition unless the group has routed this number of lookups. Waits for the device once; an
  // error costs one more wait. The caller holds the lock of routed.transfers.
  Status Read(GpuCall* call, Span<DeviceTable* const> tables, const GpuRoutedGroup& routed,
              const Inbox& replies, int64_t lookups);

  // For kernels: the rows of table `t`, which are those of routed.received(t); `inverse` is not set. Valid as
  // long as this object and the messages.
  OccurrenceRows of(int t) const;

 private:
  // What the rows of table `t` take in the answer of rank `r`, in units of a float.
  int64_t FloatsFrom(int t, int r) const {
    return AnswerFloats(routed_->rows_from(t, r).size(), routed_->dims[t], routed_->types[t]);
  }
  Status CheckErrors(GpuCall* call, Span<DeviceTable* const> tables, const Inbox& replies) const;
  Status CheckSizes(const Inbox& replies) const;
  Status UploadStarts(GpuCall* call, const Inbox& replies);

  const GpuRoutedGroup* routed_ = nullptr;
  DeviceBuffer<char> memory_;
  char* const* starts_ = nullptr;    // [tables * ranks], on the device: where each part's rows start
  std::vector<uint8_t> is_aligned_;  // by table: OccurrenceRows::records_are_aligned
};

Status ReceivedRows::Read(GpuCall* call, Span<DeviceTable* const> tables, const GpuRoutedGroup& routed,
                          const Inbox& replies, int64_t lookups) {
  routed_ = &routed;
  SOK_RETURN_IF_ERROR(CheckRanks(replies, routed.ranks));
  SOK_RETURN_IF_ERROR(CheckErrors(call, tables, replies));
  SOK_RETURN_IF_ERROR(CheckRouted(routed.num_lookups(), lookups));
  SOK_RETURN_IF_ERROR(CheckSizes(replies));
  return UploadStarts(call, replies);
}

Status ReceivedRows::CheckErrors(GpuCall* call, Span<DeviceTable* const> tables, const Inbox& replies) const {
  HostTransfers& transfers = *routed_->transfers;
  MessageHeads heads;
  SOK_RETURN_IF_ERROR(heads.Fetch(call, &transfers.upload, &transfers.round_trip, replies, kHeaderWords));
  std::vector<MessageHeader> headers(replies.size());
  for (int r = 0; r < routed_->ranks; ++r) {
    SOK_RETURN_IF_ERROR(heads.Read(call, &transfers.round_trip, r, MessageKind::kReply, &headers[r]));
  }
  return FirstRefusal(headers, routed_->rank, tables.size(),
                      [&](int64_t t) { return Describe(DefinitionOf(*tables[t], routed_->modes[t])); });
}

Status ReceivedRows::CheckSizes(const Inbox& replies) const {
  for (int r = 0; r < routed_->ranks; ++r) {
    int64_t floats = 0;
    for (int t = 0; t < routed_->num_tables(); ++t) floats += FloatsFrom(t, r);
    const int64_t words = replies[r].size() - kHeaderWords;
    if (words != WordsOf(floats * static_cast<int64_t>(sizeof(float)))) {
      return AnswerDoesNotFit(r, words, floats);
    }
  }
  return OkStatus();
}

Status ReceivedRows::UploadStarts(GpuCall* call, const Inbox& replies) {
  const int num_tables = routed_->num_tables();
  std::vector<const char*> starts(static_cast<size_t>(num_tables) * routed_->ranks, nullptr);
  is_aligned_.assign(static_cast<size_t>(num_tables), 1);
  for (int r = 0; r < routed_->ranks; ++r) {
    const char* next = reinterpret_cast<const char*>(replies[r].data() + kHeaderWords);
    for (int t = 0; t < num_tables; ++t) {
      const int64_t rows = routed_->rows_from(t, r).size();
      if (rows == 0) continue;
      // All rows of a replicated table count as rank 0's.
      starts[static_cast<size_t>(t) * routed_->ranks + (routed_->is_replicated[t] != 0 ? 0 : r)] = next;
      const uintptr_t four_numbers = static_cast<uintptr_t>(4 * BytesOf(routed_->types[t]));
      if (reinterpret_cast<uintptr_t>(next) % four_numbers != 0) is_aligned_[t] = 0;
      next += FloatsFrom(t, r) * static_cast<int64_t>(sizeof(float));
    }
  }
  const char* const* device_starts = nullptr;
  StagedUpload& upload = routed_->transfers->upload;
  upload.Add(Span<const char* const>(starts), &device_starts);
  SOK_ASSIGN_OR_RETURN(memory_, upload.Send(call->stream(), call->scratch()));
  // Kernels read rows through table views, whose pointers are not const.
  starts_ = const_cast<char* const*>(device_starts);
  return OkStatus();
}

OccurrenceRows ReceivedRows::of(int t) const {
  OccurrenceRows rows;
  rows.rows = routed_->received(t);
  rows.table.slabs = starts_ + static_cast<size_t>(t) * routed_->ranks;
  rows.table.bits = kReceivedRowBits;
  rows.table.mask = (int64_t{1} << kReceivedRowBits) - 1;
  rows.table.record_bytes = routed_->dims[t] * BytesOf(routed_->types[t]);
  rows.table.shape.weights = static_cast<uint8_t>(routed_->types[t]);
  rows.table.dim = routed_->dims[t];
  rows.table.width = routed_->dims[t];
  rows.records_are_aligned = is_aligned_[t] != 0;
  return rows;
}

namespace {

OccurrenceRows RowsOfLookup(const GpuRoutedGroup& routed, const ReceivedRows& received, int t) {
  OccurrenceRows rows = received.of(t);
  rows.inverse = routed.merged.inverse.data();
  return rows;
}

// The owners' partial sums of one lookup's bags, in scratch that lives as long as this object.
struct SumsByBag {
  DeviceBuffer<int32_t> begin;      // [bags + 1]
  DeviceBuffer<int32_t> positions;  // [sums], each bag's in the order of the owners

  Status Enqueue(GpuCall* call, const int32_t* bags, int64_t sums, int64_t num_bags) {
    SOK_ASSIGN_OR_RETURN(begin,
                         DeviceBuffer<int32_t>::Allocate(call->scratch(), call->stream(), num_bags + 1));
    SOK_ASSIGN_OR_RETURN(positions, DeviceBuffer<int32_t>::Allocate(call->scratch(), call->stream(), sums));
    return SortIntoSegments(call->stream(), call->scratch(), bags, sums, num_bags,
                            {begin.data(), positions.data()});
  }
};

}  // namespace

Status CombineRows(GpuCall* call, Span<DeviceTable* const> tables, const GpuRoutedGroup& routed,
                   const Inbox& replies, Span<const OutputRows> outputs) {
  const MutexLock lock(routed.transfers->mutex);
  ReceivedRows received;
  SOK_RETURN_IF_ERROR(received.Read(call, tables, routed, replies, outputs.size()));
  const std::vector<BagsOfLookup>& lookups = routed.merged.bags.lookups();
  std::vector<SumsByBag> sums(lookups.size());
  std::vector<LookupOutput> work;
  std::vector<DividedSums> divided;
  for (size_t l = 0; l < lookups.size(); ++l) {
    const BagsOfLookup& lookup = lookups[l];
    const int t = lookup.table;
    if (routed.merged.training) LookupCounts::Add(routed.counts[t]->ids, lookup.end - lookup.begin);
    if (!routed.sums(t)) {
      work.push_back({RowsOfLookup(routed, received, t), BagsViewOf(routed.merged.bags, l), outputs[l]});
      continue;
    }
    const int64_t first = routed.sum_begin[static_cast<size_t>(t) * routed.ranks];
    const int64_t end = routed.sum_begin[static_cast<size_t>(t + 1) * routed.ranks];
    SOK_RETURN_IF_ERROR(sums[l].Enqueue(call, routed.bags.data() + first, end - first, lookup.num_bags));
    LookupOutput output;
    output.ids = received.of(t);
    output.ids.rows += first;
    output.ids.inverse = sums[l].positions.data();
    output.bags.begin = sums[l].begin.data();
    output.bags.bags = lookup.num_bags;
    output.bags.occurrences = static_cast<int32_t>(end - first);
    output.output = outputs[l];
    work.push_back(output);
    divided.push_back({lookup.bag_begin, lookup.num_bags, lookup.combiner, routed.dims[t], outputs[l]});
  }
  SOK_RETURN_IF_ERROR(EnqueueOutputs(call->stream(), work));
  return EnqueueDivisions(call->stream(), divided);
}

Status WeightGradientsOfReceived(GpuCall* call, const GpuRoutedGroup& routed, const Inbox& replies,
                                 Span<const GradientRows> gradients, Span<float* const> weight_grads) {
  const MutexLock lock(routed.transfers->mutex);
  SOK_RETURN_IF_ERROR(CheckRouted(routed.num_lookups(), gradients.size()));
  ReceivedRows received;
  SOK_RETURN_IF_ERROR(received.Read(call, {}, routed, replies, gradients.size()));
  std::vector<LookupWeightGradient> work;
  for (size_t l = 0; l < static_cast<size_t>(weight_grads.size()); ++l) {
    if (weight_grads[l] == nullptr) continue;
    const BagsOfLookup& lookup = routed.merged.bags.lookups()[l];
    LookupWeightGradient gradient;
    gradient.ids = RowsOfLookup(routed, received, lookup.table);
    gradient.bags = BagsViewOf(routed.merged.bags, l);
    gradient.gradient = gradients[l];
    if (lookup.has_order) gradient.order = routed.merged.bags.order();
    gradient.given = lookup.given;
    gradient.occurrences = lookup.end - lookup.begin;
    gradient.out = weight_grads[l];
    work.push_back(gradient);
  }
  return EnqueueWeightGradients(call->stream(), work);
}

}  // namespace sok
