#include "cuda/sharded/received_rows.h"

#include <utility>

#include "cc/sharded/exchange_errors.h"
#include "cuda/sharded/device_definitions.h"
#include "cuda/sharded/message_heads.h"
#include "cuda/sharded/route_ids.h"

namespace sok {

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
    for (int t = 0; t < routed_->num_tables(); ++t)
      floats += routed_->rows_from(t, r).size() * routed_->dims[t];
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
      if (reinterpret_cast<uintptr_t>(next) % 16 != 0) is_aligned_[t] = 0;
      next += rows * routed_->dims[t] * static_cast<int64_t>(sizeof(float));
    }
  }
  const char* const* device_starts = nullptr;
  StagedUpload& upload = routed_->transfers->upload;
  upload.Add(Span<const char* const>(starts), &device_starts);
  StatusOr<DeviceBuffer<char>> sent = upload.Send(call->stream(), call->scratch());
  SOK_RETURN_IF_ERROR(sent.status());
  memory_ = std::move(sent.value());
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
  rows.table.stride = routed_->dims[t];
  rows.table.dim = routed_->dims[t];
  rows.table.width = routed_->dims[t];
  rows.records_are_aligned = is_aligned_[t] != 0;
  return rows;
}

}  // namespace sok
