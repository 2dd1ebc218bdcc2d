// Messages in device memory that the host composes.
#ifndef SOK_CUDA_SHARDED_MESSAGES_H_
#define SOK_CUDA_SHARDED_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/messages/message.h"
#include "cuda/base/transfers.h"
#include "cuda/group/gpu_call.h"
#include "cuda/sharded/message_kernels.h"

namespace sok {

// The part of an exchange's messages that the host reads.

// The first words of all messages of an inbox, whose words are on the device.
class MessageHeads {
 public:
  // Copies up to `words` words of each message to the host. Waits for the device once.
  Status Fetch(GpuCall* call, StagedUpload* upload, RoundTrip* round_trip, const Inbox& inbox, int64_t words);

  // The header of the message from rank `r`, as ReadHeader returns it. Waits once more if the header has an
  // error.
  Status Read(GpuCall* call, RoundTrip* round_trip, int r, MessageKind kind, MessageHeader* header) const;

  // The fetched words of rank `r`'s message.
  Span<const int64_t> words(int r) const { return Span<const int64_t>(words_[static_cast<size_t>(r)]); }

 private:
  const Inbox* inbox_ = nullptr;
  std::vector<std::vector<int64_t>> words_;  // by rank
};

// Collects the words of messages. Send enqueues the work that writes them: two uploads and one or two
// launches, whatever the number of messages. Kernels that write other parts of payloads must be enqueued
// after Send.
class MessageWriter {
 public:
  // Words from the host.
  void Add(Span<const int64_t> words, int64_t* to);
  // Adds header and text, as WriteHeader does. Returns where the payload begins.
  int64_t* AddHeader(const MessageHeader& header, int64_t* to);
  // Copy arrays on the device. 32-bit numbers take WordsOf(4 * count) words. Return where the copy ends.
  int64_t* Copy(const int64_t* words, int64_t count, int64_t* to);
  int64_t* Copy(const int32_t* numbers, int64_t count, int64_t* to);
  // Clears the last word of a message, of which the payload may leave a part unwritten.
  void ClearLast(const int64_t* payload, int64_t* end);
  void Clear(int32_t* number) { copied_numbers_.push_back({nullptr, number, 0, 1}); }

  Status Send(GpuCall* call, StagedUpload* upload);

 private:
  struct HostWords {
    int64_t at;  // in words_
    int64_t count;
    int64_t* to;
  };

  std::vector<int64_t> words_;
  std::vector<HostWords> from_host_;
  std::vector<CopiedWords> copied_words_;
  std::vector<CopiedNumbers> copied_numbers_;
};

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_MESSAGES_H_
