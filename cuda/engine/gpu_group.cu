#include "cuda/base/cuda_status.h"
#include "cuda/engine/gpu_group.h"
#include "cuda/engine/plan_views.h"

namespace sok {

IdsOfGroup GpuGroupPlan::ids() const {
  return {num_tables(), words.unique_begin(), keys.data(), unique_count};
}

Status GpuGroupPlan::WriteReferences(const EngineContext& context, int t, int64_t* references) const {
  const TableOfPlan& table = tables[static_cast<size_t>(t)];
  if (table.trained == 0) return OkStatus();
  return CudaStatus(cudaMemcpyAsync(references, rows.data() + table.first,
                                    static_cast<size_t>(table.trained) * sizeof(int64_t),
                                    cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(context.stream)),
                    "cannot copy references on the device");
}

OccurrenceRows OccurrenceRowsOf(const GpuGroupPlan& plan, size_t l, const DeviceTable& table) {
  const BagsOfLookup& lookup = plan.bags.lookups()[l];
  OccurrenceRows ids;
  ids.inverse = plan.inverse.data();
  ids.rows = plan.rows.data();
  ids.table = table.rows();
  ids.may_be_absent = plan.may_be_absent[static_cast<size_t>(lookup.table)] != 0;
  ids.keys = plan.bags.keys();
  ids.initial = table.options().initializer;
  if (table.has_admission()) {
    ids.initial = Initializer{InitializerKind::kConstant, table.options().admission.default_value, 0.0f, 0};
  }
  return ids;
}

BagsView BagsViewOf(const GpuGroupPlan& plan, size_t l) {
  const BagsOfLookup& lookup = plan.bags.lookups()[l];
  BagsView bags;
  bags.begin = lookup.bag_begin;
  if (lookup.weighted) bags.weights = plan.bags.weights();
  bags.first = lookup.begin;
  bags.bags = lookup.pooled ? lookup.num_bags : lookup.end - lookup.begin;
  bags.combiner = lookup.combiner;
  return bags;
}

}  // namespace sok
