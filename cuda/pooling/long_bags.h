// Bags with so many ids that a few lanes would take long over one.
#ifndef SOK_CUDA_POOLING_LONG_BAGS_H_
#define SOK_CUDA_POOLING_LONG_BAGS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/pooling/pool.h"

namespace sok {

// A bag of as many ids or more is long.
constexpr int64_t kLongBag = 1024;

// Whether a lookup may have long bags.
SOK_HOST_DEVICE bool MayHaveLongBags(const BagsView& bags) {
  return bags.begin != nullptr && bags.occurrences >= kLongBag;
}

// Puts the long bags of the lookups into the stream: the bits that EnqueueOutputs documents. The sum of a bag
// has one order, so one warp adds its terms, for 32 columns; all other warps of a block read rows ahead of
// it, and where there are no weights add rows in eights. Nothing is launched for a group without lookups that
// may have such bags. Thread-safe. Internal where a kernel cannot be launched.
Status EnqueueLongBags(cudaStream_t stream, Span<const LookupOutput> lookups);

}  // namespace sok

#endif  // SOK_CUDA_POOLING_LONG_BAGS_H_
