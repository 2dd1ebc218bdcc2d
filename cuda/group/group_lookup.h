// The forward pass of a group on one rank.
#ifndef SOK_CUDA_GROUP_GROUP_LOOKUP_H_
#define SOK_CUDA_GROUP_GROUP_LOOKUP_H_

#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_merge.h"
#include "cuda/group/merged_rows.h"
#include "cuda/table/device_table.h"

namespace sok {

// Engine::Lookup, Merge and Read. `memory` is the engine's, for what the plan keeps. Lookup and Read hold the
// tables' locks until their work is enqueued on the stream, also while they wait. Lookup and Merge wait for
// the device once, or twice the first time that the ids of a lookup are not in the order of bags; Read waits
// once. Tables with a disk cost more waits (BringFromDisk). An error in the inputs costs one or two more
// waits.
class GpuGroupLookup {
 public:
  GpuGroupLookup(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables, GpuGroupPlan* plan,
                 GpuScratch* scratch);

  Status Lookup(const GroupBatch& batch, Span<const OutputRows> outputs);
  Status Merge(const GroupBatch& batch);
  Status Read(Span<const OutputRows> outputs);

 private:
  // Whether the rows are as they should be read, so that nothing happens once to each distinct one.
  bool OnlyReads(const GroupBatch& batch) const;
  Status EnqueueMerge(const GroupBatch& batch, GroupMerge* merge);
  // Lets disks that are slow begin to read rows of the plan that they have.
  Status AskAhead();
  Status TakeFound(MergedRows* rows, const int64_t* words);
  Status WriteOutputs(Span<const OutputRows> outputs);

  MergedRows RowsOfPlan() { return MergedRows(&call_, memory_, tables_, &plan_, &scratch_); }
  cudaStream_t stream() const { return call_.stream(); }
  int num_tables() const { return static_cast<int>(tables_.size()); }

  GpuCall& call_;
  DeviceAllocator* memory_;
  std::vector<DeviceTable*> tables_;
  GpuGroupPlan& plan_;
  GpuScratch& scratch_;
};

}  // namespace sok

#endif  // SOK_CUDA_GROUP_GROUP_LOOKUP_H_
