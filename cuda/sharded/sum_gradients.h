// The last part of the backward pass over ranks, on the owners.
#ifndef SOK_CUDA_SHARDED_SUM_GRADIENTS_H_
#define SOK_CUDA_SHARDED_SUM_GRADIENTS_H_

#include <string_view>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/engine/gpu_scratch.h"
#include "cuda/engine/merged_training.h"
#include "cuda/sharded/gpu_served_group.h"

namespace sok {

// Engine::Sum. Waits for the device once, for the headers of the messages.
Status SumArrived(GpuCall* call, const GpuServedGroup& served, const Inbox& messages,
                  Span<float* const> grads_out, GpuScratch* scratch);

// Engine::SumAndTrain. Waits like Sum, and once more if a table was replaced since Serve.
Status TrainArrived(GpuCall* call, const GpuServedGroup& served, const Inbox& messages, float divisor,
                    std::string_view optimizer, Span<const DeviceTableStep> steps, GpuScratch* scratch);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_SUM_GRADIENTS_H_
