// What an exchange needs to know and do about the memory of a kernel's device.
#ifndef SOK_SOK_OPS_HOROVOD_DEVICE_MEMORY_H_
#define SOK_SOK_OPS_HOROVOD_DEVICE_MEMORY_H_

#include <functional>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace sok {

// Whether the kernel's device has memory that the host cannot read.
bool HasOwnMemory(tensorflow::OpKernelContext* context);

// Allocates in host memory: pinned memory, which copies take directly, if the device has its own.
tensorflow::Allocator* HostAllocator(tensorflow::OpKernelContext* context);

// The number of the kernel's device, a GPU, in Horovod.
int GpuNumber(tensorflow::OpKernelContext* context);

// Calls `function`, on a TensorFlow thread, when everything that is now in the device's kernel stream has
// run. An error if the device does not support this.
tensorflow::Status AfterKernels(tensorflow::OpKernelContext* context, std::function<void()> function);

// Copies between the device and the host, on separate TensorFlow streams. A copy to the host waits for what
// is in the device's kernel stream. No host thread waits for a copy: a TensorFlow thread calls `done`
// afterwards. The context and both tensors must live until then.
using CopyDone = std::function<void(const tensorflow::Status&)>;

void CopyToHost(tensorflow::OpKernelContext* context, const tensorflow::Tensor* on_device,
                tensorflow::Tensor* on_host, CopyDone done);
void CopyToDevice(tensorflow::OpKernelContext* context, const tensorflow::Tensor* on_host,
                  tensorflow::Tensor* on_device, CopyDone done);

// Blocks the calling thread until everything that is now in the device's kernel stream has run.
tensorflow::Status WaitForKernels(tensorflow::DeviceContext* device);

// Whether Horovod's alltoall reads and writes GPU memory, and ends only when the received words are there. It
// does if Horovod was built with GPU operations. Otherwise exchanges go through host memory.
bool HorovodTakesDeviceMemory();

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_DEVICE_MEMORY_H_
