#ifndef SOK_SOK_OPS_KERNELS_TF_STREAM_MEMORY_H_
#define SOK_SOK_OPS_KERNELS_TF_STREAM_MEMORY_H_

#include <cstdint>
#include <map>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/thread_annotations.h"
#include "cc/engine/engine_context.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace sok {

// The stream on which the kernel's device runs its kernels, for CUDA a cudaStream_t; null on a CPU. A
// plugin's device must have CUDA streams too.
void* DeviceStream(tensorflow::OpKernelContext* context);

// Memory of the kernel's device for the time that the kernel runs. It comes from TensorFlow's allocator,
// whose memory belongs to the device's single kernel stream: later kernels reuse it in that stream's order.
// Thread-safe.
class TfStreamMemory final : public StreamMemory {
 public:
  explicit TfStreamMemory(tensorflow::OpKernelContext* context) : context_(context) {}

  StatusOr<void*> Allocate(void* stream, int64_t bytes) override;
  void Free(void* stream, void* memory) override;

 private:
  tensorflow::OpKernelContext* const context_;
  Mutex mutex_;
  std::map<void*, tensorflow::Tensor> tensors_ SOK_GUARDED_BY(mutex_);
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TF_STREAM_MEMORY_H_
