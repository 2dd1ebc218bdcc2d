#include "cuda/sharded/messages.h"

#include <algorithm>
#include <string>

#include "cuda/base/device_buffer.h"
#include "cuda/sharded/message_kernels.h"

namespace sok {

Status MessageHeads::Fetch(GpuCall* call, StagedUpload* upload, RoundTrip* round_trip, const Inbox& inbox,
                           int64_t words) {
  inbox_ = &inbox;
  words_.clear();
  const int64_t total = static_cast<int64_t>(inbox.size()) * words;
  SOK_ASSIGN_OR_RETURN(auto gathered,
                       DeviceBuffer<int64_t>::Allocate(call->scratch(), call->stream(), total));
  std::vector<CopiedWords> pieces;
  for (int r = 0; r < inbox.size(); ++r) {
    int64_t* const to = gathered.data() + static_cast<int64_t>(r) * words;
    pieces.push_back({inbox[r].data(), to, std::min(inbox[r].size(), words), words});
  }
  SOK_RETURN_IF_ERROR(CopyPieces(call->stream(), call->scratch(), upload, Span<const CopiedWords>(pieces)));
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched,
                       round_trip->Fetch(call->stream(), gathered.data(), total));
  for (int r = 0; r < inbox.size(); ++r) {
    const int64_t* const head = fetched + static_cast<int64_t>(r) * words;
    words_.emplace_back(head, head + pieces[r].count);
  }
  return OkStatus();
}

Status MessageHeads::Read(GpuCall* call, RoundTrip* round_trip, int r, MessageKind kind,
                          MessageHeader* header) const {
  const Span<const int64_t>& message = (*inbox_)[r];
  HeaderWords words;
  SOK_RETURN_IF_ERROR(ReadHeaderWords(this->words(r).data(), message.size(), kind, &words));
  if (words.code == StatusCode::kOk) {
    *header = {kind, OkStatus(), words.token};
    return OkStatus();
  }
  SOK_ASSIGN_OR_RETURN(
      const int64_t* const text,
      round_trip->Fetch(call->stream(), message.data() + kHeaderWords, WordsOf(words.text_bytes)));
  const std::string what(reinterpret_cast<const char*>(text), words.text_bytes);
  *header = {kind, Status(words.code, what), words.token};
  return OkStatus();
}

void MessageWriter::Add(Span<const int64_t> words, int64_t* to) {
  from_host_.push_back({static_cast<int64_t>(words_.size()), words.size(), to});
  words_.insert(words_.end(), words.begin(), words.end());
}

int64_t* MessageWriter::AddHeader(const MessageHeader& header, int64_t* to) {
  std::vector<int64_t> words(static_cast<size_t>(MessageWords(header.status, 0)));
  WriteHeader(header, words.data());
  Add(words, to);
  return to + kHeaderWords;
}

int64_t* MessageWriter::Copy(const int64_t* words, int64_t count, int64_t* to) {
  copied_words_.push_back({words, to, count, count});
  return to + count;
}

int64_t* MessageWriter::Copy(const int32_t* numbers, int64_t count, int64_t* to) {
  const int64_t words = WordsOf(count * static_cast<int64_t>(sizeof(int32_t)));
  copied_numbers_.push_back({numbers, reinterpret_cast<int32_t*>(to), count, 2 * words});
  return to + words;
}

void MessageWriter::ClearLast(const int64_t* payload, int64_t* end) {
  if (payload < end) copied_words_.push_back({nullptr, end - 1, 0, 1});
}

Status MessageWriter::Send(GpuCall* call, StagedUpload* upload) {
  const int64_t* words = nullptr;
  upload->Add(Span<const int64_t>(words_), &words);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, upload->Send(call->stream(), call->scratch()));
  for (const HostWords& part : from_host_) {
    copied_words_.push_back({words + part.at, part.to, part.count, part.count});
  }
  SOK_RETURN_IF_ERROR(
      CopyPieces(call->stream(), call->scratch(), upload, Span<const CopiedWords>(copied_words_)));
  return CopyPieces(call->stream(), call->scratch(), upload, Span<const CopiedNumbers>(copied_numbers_));
}

}  // namespace sok
