// The messages of an exchange: 64-bit words, one message from each rank to each rank.
#ifndef SOK_CC_MESSAGES_MESSAGE_H_
#define SOK_CC_MESSAGES_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "cc/base/float_types.h"
#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/table/table_options.h"

namespace sok {

// What a table's owners send to the ranks that look up ids in it.
enum class ExchangeMode {
  kRows,  // the row of each distinct id; the asking rank pools
  kSums,  // for each bag, the sum of the rows that the owner has; the asking rank adds up the owners' sums
};

enum class MessageKind : int64_t { kRequest = 1, kReply = 2, kGradients = 3 };

// A message is a header, followed by a payload if its status is OK and by the error's text otherwise. The
// header is kHeaderWords words: kind and format, status code, bytes of text, and a word whose meaning depends
// on the kind.
constexpr int64_t kHeaderWords = 4;

struct MessageHeader {
  MessageKind kind = MessageKind::kRequest;
  Status status;
  int64_t token = 0;
};

// Allocates one buffer for the messages to all ranks, sizes[r] words for rank r, laid out as in
// MessageStarts. Returns null if that fails.
using AllocateWords = FunctionRef<int64_t*(Span<const int64_t> sizes)>;

// The start of the message to each rank in the buffer: first those to other ranks, then the one to the sender
// itself, which is not sent. `own` is the sender's rank, or kNoRank if none of them is its own.
std::vector<int64_t*> MessageStarts(int own, Span<const int64_t> sizes, int64_t* words);

// `status`, which rank `rank` found.
inline Status OnRank(int rank, const Status& status) {
  return Status(status.code(), StrCat("On rank ", rank, ": ", status.message()));
}

// The messages that arrived in an exchange, one from each sender. Does not own their words.
class Inbox {
 public:
  // `own` is the position of the receiver's message to itself, its rank. kNoRank if it is no sender: a
  // process that asks the ranks receives from them, and they from it.
  explicit Inbox(int own = kNoRank) : own_(own) {}

  int own() const { return own_; }
  int size() const { return static_cast<int>(messages_.size()); }
  const Span<const int64_t>& operator[](int sender) const { return messages_[static_cast<size_t>(sender)]; }
  void Add(Span<const int64_t> message) { messages_.push_back(message); }
  void Set(int sender, Span<const int64_t> message) { messages_[static_cast<size_t>(sender)] = message; }
  void RemoveLast() { messages_.pop_back(); }

  // The error of a sender's message. It says which rank the sender is.
  Status ErrorOf(int sender, const Status& status) const {
    return own_ == kNoRank ? status : OnRank(sender, status);
  }

 private:
  int own_;
  std::vector<Span<const int64_t>> messages_;
};

// The number of words of a message with `payload` words after its header, or of header and text if the status
// is an error.
int64_t MessageWords(const Status& status, int64_t payload);

// Writes the header, and the text of an error. Returns where the payload begins.
int64_t* WriteHeader(const MessageHeader& header, int64_t* words);

// What the words of a header say before its text is read.
struct HeaderWords {
  StatusCode code = StatusCode::kOk;
  int64_t text_bytes = 0;  // fit the message
  int64_t token = 0;
};

// Reads the header of a message of `kind` that has `size` words, of which words[0 .. min(size, kHeaderWords))
// are here. Errors as ReadHeader.
Status ReadHeaderWords(const int64_t* words, int64_t size, MessageKind kind, HeaderWords* header);

// Reads the header of a message of `kind`; *payload is the rest, empty if the header has an error. Internal
// if the message is not of this kind because it is damaged, or written by another version of the library.
Status ReadHeader(Span<const int64_t> message, MessageKind kind, MessageHeader* header,
                  Span<const int64_t>* payload);

// Internal unless there are messages from `ranks` senders.
Status CheckRanks(const Inbox& inbox, int ranks);

// Identifies the answers of one call to Serve in this process: gradients come back with it. Thread-safe.
int64_t NextToken();

// The error of a function whose AllocateWords failed.
Status NoMemoryForMessages();

// Words that `bytes` bytes take.
constexpr int64_t WordsOf(int64_t bytes) { return (bytes + 7) / 8; }

// What an answer carries for a table with rows of `type`, and what `rows` of them take there, in units of a
// float: each table's begin at a multiple of it.
inline FloatType AnswerType(FloatType type, ExchangeMode mode) {
  return mode == ExchangeMode::kRows ? type : FloatType::kFloat32;
}
inline int64_t AnswerFloats(int64_t rows, int64_t dim, FloatType type) {
  return (rows * dim * BytesOf(type) + 3) / 4;
}

// The errors of lookups over ranks that every engine has.

// The error for a request of a table that counts lookups, with counts for some ids only.
inline Status WrongCounts(int64_t counts, int64_t ids) {
  return Internal("ranks sent ", counts, " counts for ", ids, " ids");
}

inline Status AnswerDoesNotFit(int rank, int64_t words, int64_t floats) {
  return Internal("rank ", rank, " answered a lookup with ", words, " words, but this rank requested ",
                  floats, " floats");
}

inline Status GradientsDoNotFit(int rank, int64_t words) {
  return Internal("rank ", rank, " sent ", words, " words of gradients, which do not fit its lookup");
}

inline Status GradientsOfAnotherStep(int rank) {
  return FailedPrecondition("rank ", rank, " sent the gradients of another step: after an error, the ranks' ",
                            "sessions do not run the same steps. Restart all ranks from a checkpoint");
}

// The later calls of a group need the results of successful earlier calls.
inline Status CheckRouted(int64_t routed, int64_t lookups) {
  if (routed == lookups) return OkStatus();
  return FailedPrecondition("this rank has routed ", routed, " of ", lookups, " lookups");
}
inline Status LookupHadAnError() {
  return FailedPrecondition("gradients arrived for a lookup that had an error");
}

// The formats of gradients in exchanges between ranks.

using GradientFormat = FloatType;

constexpr bool IsGradientFormat(int64_t value) { return value >= 0 && value <= 2; }

// Rounds to nearest, ties to even: IEEE binary16 (from 65520 on to infinity), or the upper half of a float.
// NaN stays NaN. `format` is one of the 16-bit formats.
void EncodeGradients(GradientFormat format, const float* values, int64_t count, uint16_t* out);

// Exact. Decodes float16 denormals even on threads that flush denormal floats to zero.
void DecodeGradients(GradientFormat format, const uint16_t* values, int64_t count, float* out);

}  // namespace sok

#endif  // SOK_CC_MESSAGES_MESSAGE_H_
