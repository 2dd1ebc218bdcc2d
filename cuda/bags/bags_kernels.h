// The passes that make bags. Each puts its work into the stream.
#ifndef SOK_CUDA_BAGS_BAGS_KERNELS_H_
#define SOK_CUDA_BAGS_BAGS_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/bags/bags_view.h"
#include "cuda/base/device_allocator.h"

namespace sok {

// The keys by which ids are sorted, those of all lookups with `first_sorted` at once: keys[k] is the number
// of a bag among those of all lookups, given[k] the id's position in its lookup. `n` in all.
Status WriteSortKeys(cudaStream_t stream, const GroupView& group, int64_t n, uint32_t* keys, int32_t* given);

struct BagPasses {
  int64_t num_ids = 0;      // of all lookups
  int64_t id_tiles = 0;     // blocks that read ids
  int64_t split_tiles = 0;  // blocks that read row splits
  bool drops_ids = false;   // some lookup does
};

// Checks the inputs and writes the arrays and the report of `group`. Inputs with errors are reported, and
// leave arrays of no use: keys are written for all occurrences then, too, and nothing is read or written
// beyond arrays.
Status WriteBags(cudaStream_t stream, DeviceAllocator* scratch, const GroupView& group,
                 const BagPasses& passes);

}  // namespace sok

#endif  // SOK_CUDA_BAGS_BAGS_KERNELS_H_
