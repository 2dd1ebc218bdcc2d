#include "cc/messages/message.h"

#include <atomic>
#include <cstring>
#include <string>

#include "cc/base/vectorize.h"

namespace sok {
namespace {

// "SOK", then the version of the format, then a byte for the kind.
constexpr int64_t kFormat = 0x534f4b'0000'0100;

}  // namespace

std::vector<int64_t*> MessageStarts(int own, Span<const int64_t> sizes, int64_t* words) {
  std::vector<int64_t*> starts(sizes.size());
  for (int64_t r = 0; r < sizes.size(); ++r) {
    starts[r] = words;
    if (r != own) words += sizes[r];
  }
  if (own != kNoRank) starts[own] = words;
  return starts;
}

int64_t MessageWords(const Status& status, int64_t payload) {
  return kHeaderWords + (status.ok() ? payload : WordsOf(static_cast<int64_t>(status.message().size())));
}

int64_t* WriteHeader(const MessageHeader& header, int64_t* words) {
  const std::string& text = header.status.message();
  words[0] = kFormat | static_cast<int64_t>(header.kind);
  words[1] = static_cast<int64_t>(header.status.code());
  words[2] = static_cast<int64_t>(text.size());
  words[3] = header.token;
  int64_t* payload = words + kHeaderWords;
  if (!text.empty()) {
    payload[WordsOf(words[2]) - 1] = 0;
    std::memcpy(payload, text.data(), text.size());
  }
  return payload;
}

Status ReadHeaderWords(const int64_t* words, int64_t size, MessageKind kind, HeaderWords* header) {
  if (size < kHeaderWords || words[0] != (kFormat | static_cast<int64_t>(kind))) {
    return Internal("a message of ", size, " words is not of kind ", static_cast<int64_t>(kind),
                    ": do all ranks run the same version of the library?");
  }
  const int64_t bytes = words[2];
  // Compares bytes, not WordsOf(bytes), which overflows for a damaged number.
  if (words[1] < 0 || words[1] > static_cast<int64_t>(StatusCode::kInternal) || bytes < 0 ||
      bytes > (size - kHeaderWords) * static_cast<int64_t>(sizeof(int64_t))) {
    return Internal("a message has a damaged header: code ", words[1], ", ", bytes, " bytes of text");
  }
  *header = {static_cast<StatusCode>(words[1]), bytes, words[3]};
  return OkStatus();
}

Status ReadHeader(Span<const int64_t> message, MessageKind kind, MessageHeader* header,
                  Span<const int64_t>* payload) {
  HeaderWords words;
  SOK_RETURN_IF_ERROR(ReadHeaderWords(message.data(), message.size(), kind, &words));
  header->kind = kind;
  header->token = words.token;
  if (words.code == StatusCode::kOk) {
    header->status = OkStatus();
    *payload = message.subspan(kHeaderWords, message.size() - kHeaderWords);
  } else {
    const auto* const text = reinterpret_cast<const char*>(message.data() + kHeaderWords);
    header->status = Status(words.code, std::string(text, words.text_bytes));
    *payload = {};
  }
  return OkStatus();
}

Status CheckRanks(const Inbox& inbox, int ranks) {
  if (inbox.size() == ranks) return OkStatus();
  return Internal("messages arrived from ", inbox.size(), " ranks, not from ", ranks);
}

int64_t NextToken() {
  static std::atomic<int64_t> next{1};
  return next++;
}

Status NoMemoryForMessages() {
  return ResourceExhausted("not enough memory for the messages of an exchange");
}

namespace {

template <uint16_t (*Convert)(float)>
void EncodeAll(const float* values, int64_t count, uint16_t* out) {
  RunVectorized([&] {
    for (int64_t i = 0; i < count; ++i) out[i] = Convert(values[i]);
  });
}

template <float (*Convert)(uint16_t)>
void DecodeAll(const uint16_t* values, int64_t count, float* out) {
  RunVectorized([&] {
    for (int64_t i = 0; i < count; ++i) out[i] = Convert(values[i]);
  });
}

}  // namespace

void EncodeGradients(GradientFormat format, const float* values, int64_t count, uint16_t* out) {
  format == GradientFormat::kFloat16 ? EncodeAll<ToFloat16>(values, count, out)
                                     : EncodeAll<ToBfloat16>(values, count, out);
}

void DecodeGradients(GradientFormat format, const uint16_t* values, int64_t count, float* out) {
  format == GradientFormat::kFloat16 ? DecodeAll<FromFloat16>(values, count, out)
                                     : DecodeAll<FromBfloat16>(values, count, out);
}

}  // namespace sok
