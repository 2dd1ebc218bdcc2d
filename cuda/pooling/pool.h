#ifndef SOK_CUDA_POOLING_POOL_H_
#define SOK_CUDA_POOLING_POOL_H_

#include <cuda_runtime.h>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/output_rows.h"
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
// GatherForward (cc/pooling/pool.h). One launch covers about twenty lookups, whatever their tables and dims.
// There are separate launches for lookups whose rows are or are not a multiple of 16 bytes, for lookups that
// may or may not have absent ids, and for long bags (long_bags.h). Outputs must not overlap rows. `lookups`
// need not outlive the call. Thread-safe. Internal if a kernel cannot be launched.
Status EnqueueOutputs(cudaStream_t stream, Span<const LookupOutput> lookups);

}  // namespace sok

#endif  // SOK_CUDA_POOLING_POOL_H_
