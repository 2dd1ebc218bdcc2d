// The first part of a lookup over ranks, on the asking rank.
#ifndef SOK_CUDA_SHARDED_ROUTE_LOOKUPS_H_
#define SOK_CUDA_SHARDED_ROUTE_LOOKUPS_H_

#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/messages/request.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/gpu_scratch.h"
#include "cuda/sharded/route_ids.h"
#include "cuda/sharded/sharded_group.h"
#include "cuda/table/device_table.h"

namespace sok {

// Engine::Route. `memory` is the engine's, for what the group keeps. Waits for the device once; when the ids
// of a lookup are not in the order of bags for the first time, twice.
class RouteLookups {
 public:
  RouteLookups(GpuCall* call, DeviceAllocator* memory, Span<DeviceTable* const> tables,
               GpuRoutedGroup* routed, GpuScratch* scratch);

  Status Route(const GroupBatch& batch, Span<const ExchangeMode> modes, const Status& status,
               AllocateWords allocate);

 private:
  // What kernels need to know about the tables. Must live until they are enqueued.
  struct TableArrays {
    DeviceBuffer<char> memory;
    const uint8_t* is_merged = nullptr;
    const OwnersOfTable* owners = nullptr;
    const int64_t* boundaries = nullptr;
  };

  void Prepare(const GroupBatch& batch, Span<const ExchangeMode> modes);
  // Everything except the messages.
  Status RouteBatch(const GroupBatch& batch);
  Status Upload(TableArrays* arrays);
  Status EnqueueRoutes(const TableArrays& arrays);
  Status EnqueueSums(const RoutedIds& routed);
  Status TakeRoutes(const int64_t* begins);
  Status WriteErrors(const Status& status, AllocateWords allocate);
  Status WriteRequests(AllocateWords allocate);
  RequestEntry EntryFor(int t, int r) const;
  void CountRequests() const;

  bool has_sums() const;
  bool counts(int t) const;
  int parts() const { return routed_.num_tables() * routed_.ranks; }
  // [parts + 1] each, after the words of the merge.
  int64_t* device_ids_begin() const { return routed_.merged.words.absent_begin(); }
  int64_t* device_sum_begin() const { return device_ids_begin() + parts() + 1; }

  GpuCall& call_;
  DeviceAllocator* memory_;
  std::vector<DeviceTable*> tables_;
  GpuRoutedGroup& routed_;
  GpuScratch& scratch_;
  std::vector<TableFingerprints> fingerprints_;  // by table
};

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_ROUTE_LOOKUPS_H_
