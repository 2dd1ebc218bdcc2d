#include "cuda/sharded/arrived_requests.h"

#include "cc/sharded/exchange_errors.h"
#include "cuda/sharded/message_heads.h"

namespace sok {

Status ArrivedRequests::Read(GpuCall* call, GpuScratch* scratch, const Inbox& inbox, int64_t num_tables) {
  inbox_ = &inbox;
  of_.assign(inbox.size(), {});
  trains_.assign(inbox.size(), 0);
  MessageHeads heads;
  SOK_RETURN_IF_ERROR(heads.Fetch(call, &scratch->upload, &scratch->round_trip, inbox,
                                  kHeaderWords + kRequestEntryWords * num_tables));
  for (int r = 0; r < ranks(); ++r) {
    const Status status = ReadMessage(call, &scratch->round_trip, heads, r, num_tables);
    if (!status.ok()) return OnRank(r, status);
  }
  return OkStatus();
}

Status ArrivedRequests::ReadMessage(GpuCall* call, RoundTrip* round_trip, const MessageHeads& heads, int r,
                                    int64_t num_tables) {
  MessageHeader header;
  SOK_RETURN_IF_ERROR(heads.Read(call, round_trip, r, MessageKind::kRequest, &header));
  SOK_RETURN_IF_ERROR(header.status);
  trains_[static_cast<size_t>(r)] = header.token != 0 ? 1 : 0;
  return ReadRequest(heads.words(r), r, num_tables);
}

Status ArrivedRequests::Damaged(int r) const {
  return OnRank(r, DamagedRequest((*inbox_)[static_cast<size_t>(r)].size() - kHeaderWords,
                                  static_cast<int64_t>(of_[static_cast<size_t>(r)].size())));
}

Status ArrivedRequests::ReadRequest(Span<const int64_t> head, int r, int64_t num_tables) {
  const Span<const int64_t>& message = (*inbox_)[static_cast<size_t>(r)];
  const int64_t entries = kHeaderWords + kRequestEntryWords * num_tables;
  const Status damaged = DamagedRequest(message.size() - kHeaderWords, num_tables);
  if (message.size() < entries) return damaged;
  const int64_t* next = message.data() + entries;
  int64_t left = message.size() - entries;
  for (int64_t t = 0; t < num_tables; ++t) {
    ArrivedRequest request;
    request.entry = ReadEntry(head.data() + kHeaderWords + kRequestEntryWords * t);
    const RequestEntry& entry = request.entry;
    if (!entry.Fits(left)) return damaged;
    request.ids = next;
    request.lengths = reinterpret_cast<const int32_t*>(next + entry.ids);
    const int64_t length_words = WordsOf(entry.lengths * static_cast<int64_t>(sizeof(int32_t)));
    request.counts = reinterpret_cast<const int32_t*>(next + entry.ids + length_words);
    next += entry.data_words();
    left -= entry.data_words();
    of_[static_cast<size_t>(r)].push_back(request);
  }
  return left == 0 ? OkStatus() : damaged;
}

}  // namespace sok
