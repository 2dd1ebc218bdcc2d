#ifndef SOK_CUDA_SHARDED_SHARDED_GROUP_H_
#define SOK_CUDA_SHARDED_SHARDED_GROUP_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/messages/agreement.h"
#include "cc/messages/message.h"
#include "cc/messages/request.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_merge.h"
#include "cuda/group/group_training.h"
#include "cuda/sharded/route_ids.h"
#include "cuda/table/device_table.h"

namespace sok {

// Some of the ids or rows of a routed group.
struct RoutedRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// The asking rank's state: RoutePlan (cc/cpu/sharded/sharded_group.h) on the device. Ids are numbered
// consecutively over the group, ordered by table and then by owner: see RouteIds. Part t * ranks + r consists
// of the ids of table t that rank r owns.
//
// With replicas, the lookup reads this rank's replica only; in training all ranks get the ids and the
// gradients.
class GpuRoutedGroup final : public RoutedGroup {
 public:
  using RoutedGroup::RoutedGroup;

  int num_tables() const { return static_cast<int>(dims.size()); }
  int64_t num_lookups() const { return is_routed ? static_cast<int64_t>(merged.bags.lookups().size()) : 0; }
  bool sums(int t) const { return modes[static_cast<size_t>(t)] == ExchangeMode::kSums; }
  // The ids of table `t` that are sent to rank `r`; the rows that are requested from it, whose gradients it
  // gets; and the rows that it answers with. A table's rows are numbered like its ids or, if its owners
  // answer with sums, like the sums.
  RoutedRange ids_for(int t, int r) const { return Requested(ids_begin, t, r); }
  RoutedRange rows_for(int t, int r) const { return Requested(row_begins(t), t, r); }
  RoutedRange rows_from(int t, int r) const;
  // The arrays of RouteIds and NumberReceivedRows, for these rows.
  const int64_t* received(int t) const { return sums(t) ? received_sums.data() : received_ids.data(); }

  int rank = 0;
  int ranks = 1;
  std::vector<ExchangeMode> modes;  // by table, as all that follow
  std::vector<int64_t> dims;
  std::vector<FloatType> types;  // of the rows in answers
  std::vector<uint8_t> is_replicated;
  std::vector<std::shared_ptr<LookupCounts>> counts;
  bool is_routed = false;          // whether Route succeeded; otherwise the rest must not be used
  MergedBags merged;               // merged.inverse has the ids' numbers
  std::vector<int64_t> ids_begin;  // [parts + 1]
  std::vector<int64_t> sum_begin;  // [parts + 1], if a table's owners answer with sums
  ReusableArray<int64_t> keys;
  ReusableArray<int32_t> id_counts;  // in training, if a table counts
  ReusableArray<int32_t> number;
  ReusableArray<int32_t> moved;
  ReusableArray<int32_t> bags;     // of sums
  ReusableArray<int32_t> lengths;  // of sums
  ReusableArray<int64_t> received_ids;
  ReusableArray<int64_t> received_sums;
  // From the scratch of Route. Several calls may use the group at the same time.
  std::shared_ptr<HostTransfers> transfers;

 private:
  const std::vector<int64_t>& row_begins(int t) const { return sums(t) ? sum_begin : ids_begin; }
  RoutedRange All(const std::vector<int64_t>& begin, int t) const {
    return {begin[static_cast<size_t>(t) * ranks], begin[static_cast<size_t>(t + 1) * ranks]};
  }
  RoutedRange Requested(const std::vector<int64_t>& begin, int t, int r) const {
    if (is_replicated[t] != 0) return r == rank || merged.training ? All(begin, t) : RoutedRange();
    const size_t part = static_cast<size_t>(t) * ranks + r;
    return {begin[part], begin[part + 1]};
  }
};

inline RoutedRange GpuRoutedGroup::rows_from(int t, int r) const {
  if (is_replicated[t] != 0 && r != rank) return {};
  return rows_for(t, r);
}

// The ids that a set of ranks requests from an owner. Occurrences are ordered by table and then by rank: part
// t * ranks + r consists of rank r's ids of table t.
struct ServedIds {
  MergedGroup merged;
  std::vector<int64_t> ids_begin;  // [parts + 1]
  std::vector<int64_t> sum_begin;  // [parts + 1]: requested sums of tables that answer with sums
  ReusableArray<int64_t> ids;      // [occurrences]
  // Sum k of part q covers the occurrences [sum_offsets[k + q], sum_offsets[k + q + 1]).
  ReusableArray<int32_t> sum_offsets;

  int64_t num_sums(size_t part) const { return sum_begin[part + 1] - sum_begin[part]; }
  int64_t num_ids(size_t part) const { return ids_begin[part + 1] - ids_begin[part]; }
  const int32_t* offsets_of(size_t part) const { return sum_offsets.data() + sum_begin[part] + part; }
};

// The owner's state: ServedPlan (cc/cpu/sharded/sharded_group.h) on the device.
class GpuServedGroup final : public ServedGroup {
 public:
  using ServedGroup::ServedGroup;
  // After an error no table is trained.
  int64_t trained_rows(int t) const override {
    return is_served ? trained.merged.tables[static_cast<size_t>(t)].trained : 0;
  }
  Status WriteReferences(const EngineContext& context, int t, int64_t* references) const override {
    if (!is_served) return OkStatus();
    return trained.merged.CopyReferences(static_cast<cudaStream_t>(context.stream), t, references);
  }

  // The number of rows of table `t` that rank `r` requested in training, and sends gradients for.
  int64_t RowsFrom(int t, int r) const {
    const size_t part = static_cast<size_t>(t) * ranks + r;
    return modes[t] == ExchangeMode::kRows ? trained.num_ids(part) : trained.num_sums(part);
  }
  int num_tables() const { return static_cast<int>(dims.size()); }

  // Identifies the answers: gradients come back with it.
  int64_t token = 0;
  int rank = 0;
  int ranks = 1;                    // that asked; or one process that is no rank
  int own = 0;                      // Inbox::own of the requests
  std::vector<ExchangeMode> modes;  // by table
  std::vector<int64_t> dims;        // by table
  std::vector<FloatType> types;     // by table, of the rows in answers
  std::vector<std::shared_ptr<LookupCounts>> counts;
  bool is_served = false;  // whether Serve succeeded; otherwise the rest must not be used
  ReusableArray<int64_t> word_memory;
  ServedIds trained;  // the ids of the ranks that train
};

// Takes the table's lock. Points to its options.
inline TableDefinition DefinitionOf(const DeviceTable& table, ExchangeMode mode) {
  const MutexLock lock(table.mutex());
  const DeviceOptimizer* const optimizer = table.optimizer();
  return {&table.options(), table.definition_fingerprint(), mode,
          optimizer == nullptr ? std::string() : std::string(optimizer->name())};
}

inline std::vector<TableDefinition> DefinitionsOf(Span<DeviceTable* const> tables,
                                                  Span<const ExchangeMode> modes) {
  std::vector<TableDefinition> definitions;
  for (int64_t t = 0; t < tables.size(); ++t) definitions.push_back(DefinitionOf(*tables[t], modes[t]));
  return definitions;
}

// The last part of a lookup over ranks, on the asking rank: from received rows to outputs.

// Engine::Combine. Waits for the device once, for the headers of the replies. An error costs one more wait.
Status CombineRows(GpuCall* call, Span<DeviceTable* const> tables, const GpuRoutedGroup& routed,
                   const Inbox& replies, Span<const OutputRows> outputs);

// Engine::RoutedWeightGradients. Waits like CombineRows.
Status WeightGradientsOfReceived(GpuCall* call, const GpuRoutedGroup& routed, const Inbox& replies,
                                 Span<const GradientRows> gradients, Span<float* const> weight_grads);

// The first part of the backward pass over ranks, on the asking rank.

// Engine::Reduce. Waits for nothing: the tokens go from the replies to the gradients on the device.
Status ReduceGradients(GpuCall* call, const GpuRoutedGroup& routed, Span<const GradientRows> gradients,
                       const Inbox& replies, GradientFormat format, AllocateWords allocate);

// The last part of the backward pass over ranks, on the owners.

// Engine::Sum. Waits for the device once, for the headers of the messages.
Status SumArrived(GpuCall* call, const GpuServedGroup& served, const Inbox& messages,
                  Span<float* const> grads_out, GpuScratch* scratch);

// Engine::SumAndTrain. Waits like Sum, and once more if a table was replaced since Serve.
Status TrainArrived(GpuCall* call, const GpuServedGroup& served, const Inbox& messages, float divisor,
                    std::string_view optimizer, Span<const DeviceTableStep> steps, GpuScratch* scratch);

// The first part of a lookup over ranks, on the asking rank.

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

#endif  // SOK_CUDA_SHARDED_SHARDED_GROUP_H_
