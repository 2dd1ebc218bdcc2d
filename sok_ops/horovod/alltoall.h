#ifndef SOK_SOK_OPS_HOROVOD_ALLTOALL_H_
#define SOK_SOK_OPS_HOROVOD_ALLTOALL_H_

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// The device number of the host; other numbers are GPUs.
inline constexpr int kHostMemory = -1;

// One alltoall: the words to send, and memory for the received words. Each rank sends the first splits[0]
// words to rank 0, the next splits[1] to rank 1, and so on; received words are ordered by sender. Horovod's
// thread calls the methods, and owns a reference to the object for as long as it accesses the memory.
class Alltoall {
 public:
  virtual ~Alltoall() = default;

  // The words to send, at least the sum of the splits. May be null if that is 0.
  virtual const int64_t* words() const = 0;
  virtual Span<const int32_t> splits() const = 0;  // one per rank

  // The device in whose memory the words are, sent and received: the number of a GPU, or kHostMemory. The
  // splits are in host memory.
  virtual int device() const { return kHostMemory; }

  // Allocate memory for the received words and for the number of words from each rank. Called once each, in
  // this order.
  virtual StatusOr<int64_t*> AllocateReceived(int64_t words) = 0;
  virtual StatusOr<int32_t*> AllocateReceivedSplits(int64_t ranks) = 0;

  // Called once, when an enqueued alltoall has ended.
  virtual void Done(const Status& status) = 0;
};

// The largest number of words that a rank can send or receive in one alltoall: MPI counts them with int32.
inline constexpr int64_t kMaxAlltoallWords = INT32_MAX;

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_ALLTOALL_H_
