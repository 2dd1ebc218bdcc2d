#ifndef SOK_SOK_OPS_HOROVOD_HOROVOD_QUEUE_H_
#define SOK_SOK_OPS_HOROVOD_HOROVOD_QUEUE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// Horovod's queue of collectives, without its headers: their macros and TensorFlow's do not go together.
//
// Horovod's one background thread negotiates with the other ranks which names are awaited by all of them, and
// then moves their bytes, one name after another.

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

// This process's place; an error where Horovod is not initialized.
struct HorovodPlace {
  int rank;
  int size;
};
StatusOr<HorovodPlace> GetHorovodPlace();

// Starts `alltoall` under `name`, which all ranks must enqueue and no other alltoall under way may have.
// Returns at once. After an error nothing was enqueued, and Done() is not called. Thread-safe.
//
// The caller has checked that there are `size` splits, none negative, that add up to at most
// kMaxAlltoallWords.
Status EnqueueAlltoall(const std::string& name, std::shared_ptr<Alltoall> alltoall);

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_HOROVOD_QUEUE_H_
