#ifndef SOK_CUDA_POOLING_POOL_H_
#define SOK_CUDA_POOLING_POOL_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/lookup/lookup_input.h"
#include "cuda/pooling/lookup_view.h"

namespace sok {

// The forward pass of one lookup: from rows in their table to the lookup's output. Writes every row of the
// output, as many columns as the table's dim.
struct LookupOutput {
  OccurrenceRows ids;
  BagsView bags;
  OutputRows output;
};

// Enqueues the forward passes of all lookups of a group on the stream, with the bits of PoolForward and
// GatherForward (cc/cpu/pooling/pool.h). One launch covers about twenty lookups, whatever their tables and
// dims. There are separate launches for lookups that pool, with and without weights, and those that do not,
// for lookups whose rows are or are not a multiple of four columns, for rows in 16 bits, for lookups that may
// or may not have absent ids, and for long bags (long_bags.cu). Outputs must not overlap rows. `lookups` need
// not outlive the call. Thread-safe. Internal if a kernel cannot be launched.
Status EnqueueOutputs(cudaStream_t stream, Span<const LookupOutput> lookups);

// Bags with so many ids that a few lanes would take too long for one.

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

#endif  // SOK_CUDA_POOLING_POOL_H_
