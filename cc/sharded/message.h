// What ranks send each other: messages of 64-bit words, one from each rank to each rank in an exchange.
#ifndef SOK_CC_SHARDED_MESSAGE_H_
#define SOK_CC_SHARDED_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

enum class MessageKind : int64_t { kRequest = 1, kReply = 2, kGradients = 3 };

// A message is a header and, where its status is OK, a payload; else the error's text. The header is
// kHeaderWords words: kind and format, status code, bytes of text, and a word whose meaning is the kind's.
constexpr int64_t kHeaderWords = 4;

struct MessageHeader {
  MessageKind kind = MessageKind::kRequest;
  Status status;
  int64_t token = 0;
};

// Allocates one buffer for the messages to all ranks, sizes[r] words for rank r, laid out as in
// MessageStarts. Returns null where that fails.
using AllocateWords = FunctionRef<int64_t*(Span<const int64_t> sizes)>;

// Where the message to each rank stands in its buffer: those to other ranks one after the other, then the one
// to the sender itself, which is not sent.
std::vector<int64_t*> MessageStarts(int rank, Span<const int64_t> sizes, int64_t* words);

// The messages of an exchange that a rank got, one from each rank.
using Inbox = std::vector<Span<const int64_t>>;

// Words of a message with `payload` words after its header; its text alone where the status is an error.
int64_t MessageWords(const Status& status, int64_t payload);

// Writes the header, and the text of an error. Returns where the payload begins.
int64_t* WriteHeader(const MessageHeader& header, int64_t* words);

// Reads the header of a message of `kind`; *payload is what follows, empty where the header has an error.
// Internal where the message is none of this kind: it is damaged, or of another version of the library.
Status ReadHeader(Span<const int64_t> message, MessageKind kind, MessageHeader* header,
                  Span<const int64_t>* payload);

// Internal unless there is a message from each of `ranks` ranks.
Status CheckRanks(const Inbox& inbox, int ranks);

// What a function returns whose AllocateWords failed.
Status NoMemoryForMessages();

// Words that `bytes` bytes take.
constexpr int64_t WordsOf(int64_t bytes) { return (bytes + 7) / 8; }

}  // namespace sok

#endif  // SOK_CC_SHARDED_MESSAGE_H_
