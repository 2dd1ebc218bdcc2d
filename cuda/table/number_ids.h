// Numbers some of a group's ids, in order. Only .cu files include this header.
#ifndef SOK_CUDA_TABLE_NUMBER_IDS_H_
#define SOK_CUDA_TABLE_NUMBER_IDS_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/table/key_directory.h"

namespace sok {
namespace number_ids_internal {

// The flag of each id; false beyond the last id.
template <typename Flag>
struct FlagOfId {
  const int64_t* num_ids;
  Flag flag;
  __device__ bool operator()(int64_t u) const { return u < *num_ids && flag(u); }
};

__global__ static void __launch_bounds__(kThreadsPerBlock)
    ListKernel(FlagRanks ranks, IdsOfGroup ids, SomeIds some) {
  AwaitPreviousKernels();
  for (int64_t t = ThreadOfGrid(); t <= ids.tables; t += ThreadsOfGrid()) {
    some.begin[t] = ranks.Before(ids.begin[t]);
  }
  const int64_t n = ids.begin[ids.tables];
  for (int64_t u = ThreadOfGrid(); u < n; u += ThreadsOfGrid()) {
    if (ranks.IsFlagged(u)) some.which[ranks.Before(u)] = static_cast<int32_t>(u);
  }
}

}  // namespace number_ids_internal

// Lists the ids u for which flag(u), a device function, is true. `what` names the work, for errors.
template <typename Flag>
Status NumberIds(const char* what, cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids,
                 const Flag& flag, const SomeIds& some) {
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(RankFlags(what, stream, scratch, ids.max,
                                number_ids_internal::FlagOfId<Flag>{ids.begin + ids.tables, flag}, &flags));
  return Launch(what, stream, ShapeFor(std::max<int64_t>(ids.max, ids.tables + 1)),
                number_ids_internal::ListKernel, flags.ranks(), ids, some);
}

}  // namespace sok

#endif  // SOK_CUDA_TABLE_NUMBER_IDS_H_
