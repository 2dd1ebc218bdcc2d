// The part of an exchange's messages that the host reads.
#ifndef SOK_CUDA_SHARDED_MESSAGE_HEADS_H_
#define SOK_CUDA_SHARDED_MESSAGE_HEADS_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/sharded/message.h"
#include "cuda/base/round_trip.h"
#include "cuda/base/staged_upload.h"
#include "cuda/engine/gpu_call.h"

namespace sok {

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

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_MESSAGE_HEADS_H_
