#ifndef SOK_SOK_OPS_HOROVOD_HOROVOD_QUEUE_H_
#define SOK_SOK_OPS_HOROVOD_HOROVOD_QUEUE_H_

#include <memory>
#include <string>

#include "cc/base/status.h"
#include "sok_ops/horovod/alltoall.h"

namespace sok {

// Horovod's queue of collectives, without its headers: their macros and TensorFlow's do not go together.
//
// Horovod's one background thread negotiates with the other ranks which names are awaited by all of them, and
// then moves their bytes, one name after another.

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
