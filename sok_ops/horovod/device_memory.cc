#include "sok_ops/horovod/device_memory.h"

#include <utility>

#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/platform/stream_executor.h"

namespace sok {

namespace tf = ::tensorflow;

namespace {

tf::Device* DeviceOf(tf::OpKernelContext* context) { return static_cast<tf::Device*>(context->device()); }

}  // namespace

bool HasOwnMemory(tf::OpKernelContext* context) { return context->op_device_context() != nullptr; }

tf::Allocator* HostAllocator(tf::OpKernelContext* context) {
  tf::AllocatorAttributes attributes;
  attributes.set_on_host(HasOwnMemory(context));
  attributes.set_gpu_compatible(HasOwnMemory(context));
  return context->get_allocator(attributes);
}

int GpuNumber(tf::OpKernelContext* context) {
  return context->device()->tensorflow_accelerator_device_info()->gpu_id;
}

tf::Status AfterKernels(tf::OpKernelContext* context, std::function<void()> function) {
  tf::DeviceContext* const device = context->op_device_context();
  return device->ThenExecute(DeviceOf(context), device->stream(), std::move(function));
}

void CopyToHost(tf::OpKernelContext* context, const tf::Tensor* on_device, tf::Tensor* on_host,
                CopyDone done) {
  if (on_device->NumElements() == 0) return done(tf::Status());
  context->op_device_context()->CopyDeviceTensorToCPU(on_device, "words", DeviceOf(context), on_host,
                                                      std::move(done));
}

void CopyToDevice(tf::OpKernelContext* context, const tf::Tensor* on_host, tf::Tensor* on_device,
                  CopyDone done) {
  if (on_host->NumElements() == 0) return done(tf::Status());
  context->op_device_context()->CopyCPUTensorToDevice(on_host, DeviceOf(context), on_device, std::move(done));
}

tf::Status WaitForKernels(tf::DeviceContext* device) { return device->stream()->BlockHostUntilDone(); }

}  // namespace sok
