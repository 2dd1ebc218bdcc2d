#include "cuda/sharded/message_heads.h"

#include <algorithm>
#include <string>

#include "cuda/base/device_buffer.h"
#include "cuda/sharded/copy_pieces.h"

namespace sok {

Status MessageHeads::Fetch(GpuCall* call, StagedUpload* upload, RoundTrip* round_trip, const Inbox& inbox,
                           int64_t words) {
  inbox_ = &inbox;
  words_.clear();
  const int64_t total = static_cast<int64_t>(inbox.size()) * words;
  StatusOr<DeviceBuffer<int64_t>> gathered =
      DeviceBuffer<int64_t>::Allocate(call->scratch(), call->stream(), total);
  SOK_RETURN_IF_ERROR(gathered.status());
  std::vector<CopiedWords> pieces;
  for (const Span<const int64_t>& message : inbox) {
    int64_t* const to = gathered.value().data() + static_cast<int64_t>(pieces.size()) * words;
    pieces.push_back({message.data(), to, std::min(message.size(), words), words});
  }
  SOK_RETURN_IF_ERROR(CopyPieces(call->stream(), call->scratch(), upload, Span<const CopiedWords>(pieces)));
  const StatusOr<const int64_t*> fetched = round_trip->Fetch(call->stream(), gathered.value().data(), total);
  SOK_RETURN_IF_ERROR(fetched.status());
  for (size_t r = 0; r < inbox.size(); ++r) {
    const int64_t* const head = fetched.value() + static_cast<int64_t>(r) * words;
    words_.emplace_back(head, head + pieces[r].count);
  }
  return OkStatus();
}

Status MessageHeads::Read(GpuCall* call, RoundTrip* round_trip, int r, MessageKind kind,
                          MessageHeader* header) const {
  const Span<const int64_t>& message = (*inbox_)[static_cast<size_t>(r)];
  HeaderWords words;
  SOK_RETURN_IF_ERROR(ReadHeaderWords(this->words(r).data(), message.size(), kind, &words));
  if (words.code == StatusCode::kOk) {
    *header = {kind, OkStatus(), words.token};
    return OkStatus();
  }
  const StatusOr<const int64_t*> text =
      round_trip->Fetch(call->stream(), message.data() + kHeaderWords, WordsOf(words.text_bytes));
  SOK_RETURN_IF_ERROR(text.status());
  const std::string what(reinterpret_cast<const char*>(text.value()), words.text_bytes);
  *header = {kind, Status(words.code, what), words.token};
  return OkStatus();
}

}  // namespace sok
