// The requests that arrived at an owner: the part that the host reads.
#ifndef SOK_CUDA_SHARDED_ARRIVED_REQUESTS_H_
#define SOK_CUDA_SHARDED_ARRIVED_REQUESTS_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/sharded/message.h"
#include "cc/sharded/request.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/engine/gpu_scratch.h"
#include "cuda/sharded/message_heads.h"

namespace sok {

// A rank's request for one table. The arrays are on the device, in the message.
struct ArrivedRequest {
  RequestEntry entry;
  const int64_t* ids = nullptr;
  const int32_t* lengths = nullptr;
  const int32_t* counts = nullptr;
};

class ArrivedRequests {
 public:
  // Waits for the device once, and once more if a message has an error. Every owner that gets the same
  // messages returns the same error, whether a message carries it or is itself malformed. Does not check
  // lengths and counts, nor that they are present if the exchange mode needs them.
  Status Read(GpuCall* call, GpuScratch* scratch, const Inbox& inbox, int64_t num_tables);

  int ranks() const { return static_cast<int>(trains_.size()); }
  bool trains(int r) const { return trains_[static_cast<size_t>(r)] != 0; }
  const ArrivedRequest& of(int r, int64_t t) const { return of_[static_cast<size_t>(r)][t]; }
  // The error of a request whose lengths or counts are wrong.
  Status Damaged(int r) const;

 private:
  Status ReadMessage(GpuCall* call, RoundTrip* round_trip, const MessageHeads& heads, int r,
                     int64_t num_tables);
  Status ReadRequest(Span<const int64_t> head, int r, int64_t num_tables);

  const Inbox* inbox_ = nullptr;
  std::vector<std::vector<ArrivedRequest>> of_;  // by rank, by table
  std::vector<uint8_t> trains_;                  // by rank
};

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_ARRIVED_REQUESTS_H_
