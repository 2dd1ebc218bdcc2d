#ifndef SOK_SOK_OPS_KERNELS_TF_ENGINE_CONTEXT_H_
#define SOK_SOK_OPS_KERNELS_TF_ENGINE_CONTEXT_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/shared_loop.h"
#include "cc/base/status.h"
#include "cc/engine/engine_table.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/threadpool.h"

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

// An executor that runs on the intra-op thread pool of the kernel's device. Valid while the kernel runs.
//
// It does not use the pool's own ParallelFor, which waits until every thread has done its share, even threads
// that have yet to wake up. The caller of a SharedLoop does all blocks that no other thread has taken.
class TfExecutor final : public Executor {
 public:
  explicit TfExecutor(tensorflow::OpKernelContext* context)
      : workers_(*context->device()->tensorflow_cpu_worker_threads()) {}

  int concurrency() const override { return workers_.num_threads; }

  void ParallelFor(int64_t n, int64_t ns_per_item, FunctionRef<void(int64_t, int64_t)> body) override;

 private:
  const tensorflow::DeviceBase::CpuWorkerThreads& workers_;
};

// The context with which a kernel calls an engine. Valid while the kernel runs.
class TfEngineContext {
 public:
  explicit TfEngineContext(tensorflow::OpKernelContext* context) : executor_(context), context_{executor_} {
    context_.stream = DeviceStream(context);
    TfDeviceMemory* const memory = TfDeviceMemory::Of(context, context_.stream);
    if (memory == nullptr) return;
    context_.memory = &memory->of_call;
    context_.kept_memory = &memory->kept;
  }

  const EngineContext& operator*() const { return context_; }

 private:
  TfExecutor executor_;
  EngineContext context_;
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TF_ENGINE_CONTEXT_H_
