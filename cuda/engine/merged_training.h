// Sums of gradients of a group's distinct ids, and steps with them.
#ifndef SOK_CUDA_ENGINE_MERGED_TRAINING_H_
#define SOK_CUDA_ENGINE_MERGED_TRAINING_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/engine/group_gradients.h"
#include "cuda/engine/merged_group.h"
#include "cuda/table/device_table.h"
#include "cuda/training/row_updates.h"

namespace sok {

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

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_MERGED_TRAINING_H_
