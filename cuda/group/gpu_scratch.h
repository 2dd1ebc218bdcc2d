#ifndef SOK_CUDA_GROUP_GPU_SCRATCH_H_
#define SOK_CUDA_GROUP_GPU_SCRATCH_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/engine/engine.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"

namespace sok {

// What calls reuse from step to step. One call at a time, except for `transfers`.
class GpuScratch final : public EngineScratch {
 public:
  using EngineScratch::EngineScratch;
  std::atomic<int64_t> block_bytes{0};  // of a call's memory
  StagedUpload upload;
  RoundTrip round_trip;
  // Numbers of ids, as LookupWords lists them.
  ReusableArray<int32_t> absent;
  ReusableArray<int32_t> admitted;
  ReusableArray<int32_t> gone;
  ReusableArray<int32_t> fresh;
  // What admission has decided, for each id.
  ReusableArray<int64_t> totals;
  ReusableArray<int64_t> places;
  ReusableArray<int32_t> outcomes;
  // The reordered plan, for each id.
  ReusableArray<int64_t> reordered_keys;
  ReusableArray<int64_t> reordered_rows;
  ReusableArray<int32_t> moved;
  // For lookups over ranks, whose states last one step: which lookups of the last step were not in order, and
  // what the asking rank's later calls need.
  std::vector<uint8_t> routed_sort;
  std::shared_ptr<ObjectPool<HostTransfers>> transfers = std::make_shared<ObjectPool<HostTransfers>>();
};

}  // namespace sok

#endif  // SOK_CUDA_GROUP_GPU_SCRATCH_H_
