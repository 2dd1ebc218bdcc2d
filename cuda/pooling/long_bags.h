// Bags with so many ids that a few lanes would take too long for one.
#ifndef SOK_CUDA_POOLING_LONG_BAGS_H_
#define SOK_CUDA_POOLING_LONG_BAGS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/pooling/pool.h"

namespace sok {

// A bag of at least this many ids is long.
constexpr int64_t kLongBag = 1024;

// Whether a lookup may have long bags.
SOK_HOST_DEVICE bool MayHaveLongBags(const BagsView& bags) {
  return bags.begin != nullptr && bags.occurrences >= kLongBag;
}

// Enqueues the outputs of the lookups' long bags, with the bits that EnqueueOutputs documents. The terms of a
// bag have to be added in one order, so one warp adds them, for 32 columns. The other warps of the block read
// rows ahead of it and, if there are no weights, add rows in eights. Launches nothing for a group without
// lookups that may have such bags. Thread-safe. Internal if a kernel cannot be launched.
Status EnqueueLongBags(cudaStream_t stream, Span<const LookupOutput> lookups);

}  // namespace sok

#endif  // SOK_CUDA_POOLING_LONG_BAGS_H_
