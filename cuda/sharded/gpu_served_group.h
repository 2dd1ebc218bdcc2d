#ifndef SOK_CUDA_SHARDED_GPU_SERVED_GROUP_H_
#define SOK_CUDA_SHARDED_GPU_SERVED_GROUP_H_

#include <cstdint>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/sharded/exchange_mode.h"
#include "cuda/engine/merged_group.h"
#include "cuda/engine/reusable_array.h"

namespace sok {

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

// The owner's state: ServedPlan (cc/sharded/plans.h) on the device.
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
  int ranks = 1;
  std::vector<ExchangeMode> modes;  // by table
  std::vector<int64_t> dims;        // by table
  bool is_served = false;           // whether Serve succeeded; otherwise the rest must not be used
  ReusableArray<int64_t> word_memory;
  ServedIds trained;  // the ids of the ranks that train
};

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_GPU_SERVED_GROUP_H_
