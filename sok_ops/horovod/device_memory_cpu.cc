// For builds without GPU support: every device is a CPU, so tensors need no copies and no waiting.

#include "sok_ops/horovod/device_memory.h"
#include "sok_ops/kernels/tf_versions.h"

namespace sok {

namespace tf = ::tensorflow;

bool HasOwnMemory(tf::OpKernelContext* /*context*/) { return false; }

tf::Allocator* HostAllocator(tf::OpKernelContext* context) {
  return context->get_allocator(tf::AllocatorAttributes());
}

int GpuNumber(tf::OpKernelContext* /*context*/) { return -1; }

tf::Status AfterKernels(tf::OpKernelContext* /*context*/, std::function<void()> function) {
  function();
  return tf::Status();
}

void CopyToHost(tf::OpKernelContext* /*context*/, const tf::Tensor* on_device, tf::Tensor* on_host,
                CopyDone done) {
  *on_host = *on_device;
  done(tf::Status());
}

void CopyToDevice(tf::OpKernelContext* /*context*/, const tf::Tensor* on_host, tf::Tensor* on_device,
                  CopyDone done) {
  *on_device = *on_host;
  done(tf::Status());
}

tf::Status WaitForKernels(tf::DeviceContext* /*device*/) { return tf::Status(); }

}  // namespace sok
