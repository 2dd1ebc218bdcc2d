// Copies between the memory of a kernel's device and memory of the host.
//
// TensorFlow makes them, on streams of their own: a copy to the host waits for what is in the device's stream
// of kernels, and no thread of the host waits for a copy. A thread of TensorFlow's calls `done` when it has
// been made. The context and both tensors must live until then.
#ifndef SOK_SOK_OPS_HOROVOD_DEVICE_COPIES_H_
#define SOK_SOK_OPS_HOROVOD_DEVICE_COPIES_H_

#include <functional>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace sok {

// Whether the kernel's device has memory that the host cannot read.
bool HasOwnMemory(tensorflow::OpKernelContext* context);

// Allocates in the host's memory: pinned memory, which copies take directly, if the device has its own.
tensorflow::Allocator* HostAllocator(tensorflow::OpKernelContext* context);

using CopyDone = std::function<void(const tensorflow::Status&)>;

void CopyToHost(tensorflow::OpKernelContext* context, const tensorflow::Tensor* on_device,
                tensorflow::Tensor* on_host, CopyDone done);
void CopyToDevice(tensorflow::OpKernelContext* context, const tensorflow::Tensor* on_host,
                  tensorflow::Tensor* on_device, CopyDone done);

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_DEVICE_COPIES_H_
