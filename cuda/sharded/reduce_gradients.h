// The first part of the backward pass over ranks, on the asking rank.
#ifndef SOK_CUDA_SHARDED_REDUCE_GRADIENTS_H_
#define SOK_CUDA_SHARDED_REDUCE_GRADIENTS_H_

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/sharded/gpu_routed_group.h"

namespace sok {

// Engine::Reduce. Waits for nothing: the tokens go from the replies to the gradients on the device.
Status ReduceGradients(GpuCall* call, const GpuRoutedGroup& routed, Span<const GradientRows> gradients,
                       const Inbox& replies, GradientFormat format, AllocateWords allocate);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_REDUCE_GRADIENTS_H_
