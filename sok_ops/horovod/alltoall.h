#ifndef SOK_SOK_OPS_HOROVOD_ALLTOALL_H_
#define SOK_SOK_OPS_HOROVOD_ALLTOALL_H_

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// One alltoall: what it sends and where what arrives goes. Each rank sends the first splits[0] words to rank
// 0, the next splits[1] to rank 1, and so on; what arrives is ordered by sender. Horovod's thread calls the
// methods; it holds the object until it has no more use for any of its memory.
class Alltoall {
 public:
  virtual ~Alltoall() = default;

  // What is sent, at least as many words as the splits add up to. May be null where they add up to 0.
  virtual const int64_t* words() const = 0;
  virtual Span<const int32_t> splits() const = 0;  // one per rank

  // Memory for what arrives and for the number of words from each rank, called once each and in this order.
  virtual StatusOr<int64_t*> AllocateReceived(int64_t words) = 0;
  virtual StatusOr<int32_t*> AllocateReceivedSplits(int64_t ranks) = 0;

  // Called once, at the end of an alltoall that was enqueued.
  virtual void Done(const Status& status) = 0;
};

// The largest number of words that a rank can send or receive in one alltoall: MPI counts them with int32.
inline constexpr int64_t kMaxAlltoallWords = INT32_MAX;

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_ALLTOALL_H_
