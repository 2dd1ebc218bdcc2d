// The forward pass of a group on one rank.
#ifndef SOK_CUDA_ENGINE_GROUP_LOOKUP_H_
#define SOK_CUDA_ENGINE_GROUP_LOOKUP_H_

#include <string>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/base/device_allocator.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/engine/gpu_group.h"
#include "cuda/table/admit_ids.h"
#include "cuda/table/device_table.h"

namespace sok {

// Engine::Lookup, Merge and Read. `memory` is the engine's, for what the plan keeps. Lookup and Read hold the
// tables' locks while they put their work into the stream. Lookup waits for the device once; when the ids of
// a lookup are not in the order of bags for the first time, twice. Merge and Read wait once each.
class GroupLookup {
 public:
  GroupLookup(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables, GpuGroupPlan* plan,
              GpuScratch* scratch);

  Status Lookup(const GroupBatch& batch, Span<const OutputRows> outputs);
  Status Merge(const GroupBatch& batch);
  Status Read(Span<const OutputRows> outputs);

 private:
  // What the round trip says of the ids without rows: where those of each table begin.
  struct Found {
    std::vector<int64_t> absent;
    // Without filters those that are admitted are `absent`, and the others empty.
    std::vector<int64_t> admitted;
    std::vector<int64_t> gone;
    std::vector<int64_t> fresh;

    int64_t NumAbsent(int64_t t) const { return absent[t + 1] - absent[t]; }
    int64_t NumAdmitted(int64_t t) const { return admitted[t + 1] - admitted[t]; }
  };

  // Puts work into the stream: bags and distinct ids; rows; what admission decides.
  Status EnqueueMerge(const GroupBatch& batch);
  Status EnqueueFind();
  Status EnqueueAdmission();
  // Take what the round trip has brought. TakeMerged returns whether ids have to be sorted first after all.
  StatusOr<bool> TakeMerged(const GroupBatch& batch, const int64_t* words);
  Status TakeFound(const int64_t* words);
  Status NoRowFor(uint64_t u);
  // Training: rows for ids that have none.
  Status Insert(const Found& found);
  Status MakeRoom(const Found& found);
  Status CommitFilters(const Found& found);
  void CountLookup(int64_t t, const Found& found);
  Status PutRowsFirst(const Found& found);
  Status MakeReferences();
  Status WriteOutputs(Span<const OutputRows> outputs);

  SomeIds AdmittedIds() const;
  Outcomes OutcomesOfIds() const;
  cudaStream_t stream() const { return call_.stream(); }
  int num_tables() const { return static_cast<int>(tables_.size()); }
  BagsInput InputOf(const GroupBatch& batch) const;

  GpuCall& call_;
  DeviceAllocator* memory_;
  std::vector<DeviceTable*> tables_;
  std::vector<std::string> names_;
  GpuGroupPlan& plan_;
  GpuScratch& scratch_;
  bool has_filters_ = false;  // whether some table has admission, in training
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_GROUP_LOOKUP_H_
