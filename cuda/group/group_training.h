// Backward passes and steps of a group on one rank.
#ifndef SOK_CUDA_GROUP_GROUP_TRAINING_H_
#define SOK_CUDA_GROUP_GROUP_TRAINING_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_gradients.h"
#include "cuda/group/group_merge.h"
#include "cuda/table/device_table.h"
#include "cuda/training/row_updates.h"

namespace sok {

// Sums of gradients of a group's distinct ids, and steps with them.

// grads_out[t], [trained rows of table t, dim]: the sums of `gradients`. Null for tables whose sums are not
// needed. Waits for nothing.
Status SumMerged(GpuCall* call, const MergedGroup& group, const std::vector<GradientOfTable>& gradients,
                 Span<float* const> grads_out);

// One table's step.
struct DeviceTableStep {
  int position = 0;  // of the table in its group
  DeviceTable* table = nullptr;
  Span<const float> hyper;
};

// SumMerged, with the sums divided by `divisor`, and the steps with them, in one pass. Takes the tables'
// locks, and checks all steps before the first. If memory runs out, no step was taken; tables without an
// optimizer may have got this one. Waits for the device only if a table was replaced since the group's
// lookup.
Status TrainMerged(GpuCall* call, const MergedGroup& group, const std::vector<GradientOfTable>& gradients,
                   float divisor, std::string_view optimizer, Span<const DeviceTableStep> steps);

// An update of rows[count] of a table; its gradients are still to be set.
RowUpdate RowUpdateOf(const DeviceTable& table, const int64_t* rows, int64_t count, Span<const float> hyper);

// Engine::Backward. Waits for nothing.
Status GroupBackward(GpuCall* call, const GpuGroupPlan& plan, Span<const GradientRows> gradients,
                     Span<float* const> grads_out);

// Engine::Train. Waits for the device only if a table was replaced since the plan's lookup.
Status GroupTrain(GpuCall* call, const GpuGroupPlan& plan, Span<const GradientRows> gradients,
                  std::string_view optimizer, Span<const DeviceTableStep> steps);

// Engine::WeightGradients. Waits for the device only if rows were erased since the lookup.
Status GroupWeightGradients(GpuCall* call, Span<DeviceTable* const> tables, const GpuGroupPlan& plan,
                            Span<const GradientRows> gradients, Span<float* const> weight_grads);

// EngineTable::ApplyGradients. The caller holds the table's lock. Waits for the device, to learn whether the
// references are valid for the table, and unless `distinct` once more, for the number of distinct rows.
Status ApplyGradientsTo(GpuCall* call, DeviceTable* table, std::string_view optimizer,
                        Span<const float> hyper, Span<const int64_t> references, const float* grads,
                        bool distinct);

}  // namespace sok

#endif  // SOK_CUDA_GROUP_GROUP_TRAINING_H_
