#ifndef SOK_SOK_OPS_KERNELS_TF_STREAM_MEMORY_H_
#define SOK_SOK_OPS_KERNELS_TF_STREAM_MEMORY_H_

#include <cstdint>

#include "cc/base/status.h"
#include "cc/engine/engine_context.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The stream on which the kernel's device runs its kernels, for CUDA a cudaStream_t; null on a CPU. A
// plugin's device must have CUDA streams too.
void* DeviceStream(tensorflow::OpKernelContext* context);

// Memory of TensorFlow's allocator for a device. It belongs to the device's single kernel stream: later
// kernels reuse it in that stream's order. Thread-safe.
class TfStreamMemory final : public StreamMemory {
 public:
  // `waits`: whether Allocate waits, up to ten seconds, for other kernels to free memory.
  TfStreamMemory(tensorflow::Allocator* allocator, bool waits) : allocator_(*allocator), waits_(waits) {}

  StatusOr<void*> Allocate(void* stream, int64_t bytes) override;
  void Free(void* stream, void* memory) override;

 private:
  tensorflow::Allocator& allocator_;
  const bool waits_;
};

// The memory of a device. It is never destroyed: TensorFlow keeps the allocators and streams of GPUs until
// the process ends, also when the session that has made a table is closed.
struct TfDeviceMemory {
  explicit TfDeviceMemory(tensorflow::Allocator* allocator)
      : of_call(allocator, true), kept(allocator, false) {}

  // Of the kernel's device, whose stream is `stream`; null on a CPU.
  static TfDeviceMemory* Of(tensorflow::OpKernelContext* context, void* stream);

  TfStreamMemory of_call;
  // For what outlives a call, such as tables, which grow ahead of their needs if there is memory.
  TfStreamMemory kept;
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TF_STREAM_MEMORY_H_
