// The passes that make bags. Each enqueues its work on the stream.
#ifndef SOK_CUDA_BAGS_BAGS_KERNELS_H_
#define SOK_CUDA_BAGS_BAGS_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/bags/bags_view.h"
#include "cuda/base/device_allocator.h"

namespace sok {

// The keys by which ids are sorted, for all lookups with `first_sorted` at once: keys[k] is the number of a
// bag among the bags of all lookups, given[k] the id's position in its lookup. There are `n` of them.
Status WriteSortKeys(cudaStream_t stream, const GroupView& group, int64_t n, uint32_t* keys, int32_t* given);

struct BagPasses {
  int64_t num_ids = 0;      // of all lookups
  int64_t id_tiles = 0;     // blocks that read ids
  int64_t split_tiles = 0;  // blocks that read row splits
  bool drops_ids = false;   // whether some lookup drops ids
};

// Checks the inputs and writes the arrays and the report of `group`. Errors in the inputs are reported, and
// the arrays must then not be used: even so, keys are written for all occurrences, and nothing is read or
// written out of bounds.
Status WriteBags(cudaStream_t stream, DeviceAllocator* scratch, const GroupView& group,
                 const BagPasses& passes);

}  // namespace sok

#endif  // SOK_CUDA_BAGS_BAGS_KERNELS_H_
