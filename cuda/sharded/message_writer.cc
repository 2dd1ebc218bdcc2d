#include "cuda/sharded/message_writer.h"

namespace sok {

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
  const StatusOr<DeviceBuffer<char>> uploaded = upload->Send(call->stream(), call->scratch());
  SOK_RETURN_IF_ERROR(uploaded.status());
  for (const HostWords& part : from_host_) {
    copied_words_.push_back({words + part.at, part.to, part.count, part.count});
  }
  SOK_RETURN_IF_ERROR(
      CopyPieces(call->stream(), call->scratch(), upload, Span<const CopiedWords>(copied_words_)));
  return CopyPieces(call->stream(), call->scratch(), upload, Span<const CopiedNumbers>(copied_numbers_));
}

}  // namespace sok
