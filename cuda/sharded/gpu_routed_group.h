#ifndef SOK_CUDA_SHARDED_GPU_ROUTED_GROUP_H_
#define SOK_CUDA_SHARDED_GPU_ROUTED_GROUP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/sharded/exchange_mode.h"
#include "cuda/engine/group_merge.h"
#include "cuda/engine/host_transfers.h"
#include "cuda/engine/reusable_array.h"

namespace sok {

// Some of the ids or rows of a routed group.
struct RoutedRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// The asking rank's state: RoutePlan (cc/sharded/plans.h) on the device. Ids are numbered consecutively over
// the group, ordered by table and then by owner: see RouteIds. Part t * ranks + r consists of the ids of
// table t that rank r owns.
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

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_GPU_ROUTED_GROUP_H_
