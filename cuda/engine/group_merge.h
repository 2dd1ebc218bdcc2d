// The distinct ids of a group of lookups.
#ifndef SOK_CUDA_ENGINE_GROUP_MERGE_H_
#define SOK_CUDA_ENGINE_GROUP_MERGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/bags/group_bags.h"
#include "cuda/base/device_allocator.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/engine/gpu_scratch.h"
#include "cuda/engine/merged_group.h"
#include "cuda/engine/reusable_array.h"
#include "cuda/table/device_table.h"

namespace sok {

// The lookups of a group on the asking rank, and their distinct ids.
struct MergedBags : MergedGroup {
  GroupBags bags;
  ReusableArray<int64_t> word_memory;
  std::vector<uint8_t> sort;  // by lookup: whether to sort its ids by bag, as they were out of order
};

// Merges the ids of a batch. `memory` is the engine's, for what the group keeps. Uses only the tables' names.
class GroupMerge {
 public:
  GroupMerge(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables, const GroupBatch& batch,
             MergedBags* group, GpuScratch* scratch);

  // Makes room for `more_words` words after group->words.merge_size(), and enqueues the work that makes bags,
  // distinct ids and, if `counts`, group->counts. is_merged[tables], on the device, says which tables' ids
  // are merged; null: all. The caller then fetches the words from group->words.report() on.
  Status Enqueue(int64_t more_words, bool counts, const uint8_t* is_merged = nullptr);
  // Takes merge_size() of these words. Returns whether ids have to be sorted first: then call Enqueue again.
  // Errors as for GroupBags::TakeReport.
  StatusOr<bool> Take(const int64_t* words);

 private:
  BagsInput Input() const;

  GpuCall& call_;
  DeviceAllocator* memory_;
  std::vector<std::string> names_;
  const GroupBatch& batch_;
  MergedBags& group_;
  GpuScratch& scratch_;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_GROUP_MERGE_H_
