#ifndef SOK_CUDA_POOLING_POOL_H_
#define SOK_CUDA_POOLING_POOL_H_

#include <cuda_runtime.h>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/output_rows.h"
#include "cuda/pooling/lookup_view.h"

namespace sok {

// The forward pass of one lookup: from rows in their table to the lookup's output, of which every row is
// written, the table's dim of each.
struct LookupOutput {
  OccurrenceRows ids;
  BagsView bags;
  OutputRows output;
};

// Puts the forward passes of all lookups of a group into the stream: the bits of PoolForward and
// GatherForward (cc/pooling/pool.h). A launch serves some twenty lookups, whatever their tables and dims are;
// lookups with rows of whole 16 bytes, without them, with ids that may be absent, and without, are launched
// apart, and long bags (long_bags.h) by themselves. Outputs must not overlap rows. `lookups` need not outlive
// the call. Thread-safe. Internal where a kernel cannot be launched.
Status EnqueueOutputs(cudaStream_t stream, Span<const LookupOutput> lookups);

}  // namespace sok

#endif  // SOK_CUDA_POOLING_POOL_H_
