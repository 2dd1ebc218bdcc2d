#ifndef SOK_SOK_OPS_HOROVOD_HOROVOD_QUEUE_H_
#define SOK_SOK_OPS_HOROVOD_HOROVOD_QUEUE_H_

#include <memory>
#include <string>

#include "cc/base/status.h"
#include "sok_ops/horovod/alltoall.h"

namespace sok {

// Horovod's queue of collectives, without Horovod's headers, whose macros conflict with TensorFlow's.
//
// Horovod's one background thread negotiates with the other ranks which collectives all of them wait for, and
// then runs these one after another.

// This process's rank, and the number of ranks.
struct HorovodPlace {
  int rank;
  int size;
};
// An error if Horovod is not initialized.
StatusOr<HorovodPlace> GetHorovodPlace();

// Whether Horovod is built for GPUs. Only the build of this library for such a Horovod fits it.
bool IsBuiltForGpus();

// Starts `alltoall` under `name`. All ranks must enqueue that name, and no other alltoall in flight may have
// it. Returns at once. After an error nothing was enqueued, and Done() is not called. Thread-safe.
//
// The caller has checked that words of a GPU are ready, and that Horovod takes them; that there are `size`
// splits, none negative, that add up to at most kMaxAlltoallWords.
Status EnqueueAlltoall(const std::string& name, std::shared_ptr<Alltoall> alltoall);

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_HOROVOD_QUEUE_H_
