// Backward passes and steps of a group on one rank.
#ifndef SOK_CUDA_ENGINE_GROUP_TRAINING_H_
#define SOK_CUDA_ENGINE_GROUP_TRAINING_H_

#include <string_view>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/engine/gpu_group.h"
#include "cuda/engine/merged_training.h"
#include "cuda/table/device_table.h"

namespace sok {

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

#endif  // SOK_CUDA_ENGINE_GROUP_TRAINING_H_
