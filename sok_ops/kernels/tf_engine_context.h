#ifndef SOK_SOK_OPS_KERNELS_TF_ENGINE_CONTEXT_H_
#define SOK_SOK_OPS_KERNELS_TF_ENGINE_CONTEXT_H_

#include "cc/engine/engine_context.h"
#include "sok_ops/kernels/tf_executor.h"
#include "sok_ops/kernels/tf_stream_memory.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The context with which a kernel calls an engine. Valid while the kernel runs.
class TfEngineContext {
 public:
  explicit TfEngineContext(tensorflow::OpKernelContext* context)
      : executor_(context),
        memory_(context),
        context_{executor_, DeviceStream(context),
                 context->op_device_context() == nullptr ? nullptr : &memory_} {}

  const EngineContext& operator*() const { return context_; }

 private:
  TfExecutor executor_;
  TfStreamMemory memory_;
  const EngineContext context_;
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TF_ENGINE_CONTEXT_H_
