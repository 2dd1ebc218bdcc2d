#include "cc/sharded/message.h"

#include <cstring>
#include <string>

namespace sok {
namespace {

// "SOK", then the version of the format, then a byte for the kind.
constexpr int64_t kFormat = 0x534f4b'0000'0100;

}  // namespace

std::vector<int64_t*> MessageStarts(int rank, Span<const int64_t> sizes, int64_t* words) {
  std::vector<int64_t*> starts(sizes.size());
  for (int64_t r = 0; r < sizes.size(); ++r) {
    starts[r] = words;
    if (r != rank) words += sizes[r];
  }
  starts[rank] = words;
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

Status ReadHeader(Span<const int64_t> message, MessageKind kind, MessageHeader* header,
                  Span<const int64_t>* payload) {
  if (message.size() < kHeaderWords || message[0] != (kFormat | static_cast<int64_t>(kind))) {
    return Internal("a message of ", message.size(), " words is not of kind ", static_cast<int64_t>(kind),
                    ": do all ranks run the same version of the library?");
  }
  const int64_t bytes = message[2];
  const int64_t rest = message.size() - kHeaderWords;
  if (message[1] < 0 || message[1] > static_cast<int64_t>(StatusCode::kInternal) || bytes < 0 ||
      WordsOf(bytes) > rest) {
    return Internal("a message has a damaged header: code ", message[1], ", ", bytes, " bytes of text");
  }
  header->kind = kind;
  header->token = message[3];
  const auto code = static_cast<StatusCode>(message[1]);
  if (code == StatusCode::kOk) {
    header->status = OkStatus();
    *payload = message.subspan(kHeaderWords, rest);
  } else {
    header->status =
        Status(code, std::string(reinterpret_cast<const char*>(message.data() + kHeaderWords), bytes));
    *payload = {};
  }
  return OkStatus();
}

Status CheckRanks(const Inbox& inbox, int ranks) {
  if (static_cast<int>(inbox.size()) == ranks) return OkStatus();
  return Internal("messages arrived from ", inbox.size(), " ranks, not from ", ranks);
}

Status NoMemoryForMessages() {
  return ResourceExhausted("not enough memory for the messages of an exchange");
}

}  // namespace sok
