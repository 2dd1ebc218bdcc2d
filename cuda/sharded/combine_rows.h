// The last part of a lookup over ranks, on the asking rank: from received rows to outputs.
#ifndef SOK_CUDA_SHARDED_COMBINE_ROWS_H_
#define SOK_CUDA_SHARDED_COMBINE_ROWS_H_

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/sharded/gpu_routed_group.h"
#include "cuda/table/device_table.h"

namespace sok {

// Engine::Combine. Waits for the device once, for the headers of the replies. An error costs one more wait.
Status CombineRows(GpuCall* call, Span<DeviceTable* const> tables, const GpuRoutedGroup& routed,
                   const Inbox& replies, Span<const OutputRows> outputs);

// Engine::RoutedWeightGradients. Waits like CombineRows.
Status WeightGradientsOfReceived(GpuCall* call, const GpuRoutedGroup& routed, const Inbox& replies,
                                 Span<const GradientRows> gradients, Span<float* const> weight_grads);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_COMBINE_ROWS_H_
