#include "sok_ops/kernels/gpu_kernels.h"

namespace sok {

namespace tf = ::tensorflow;

bool AddGpuKernel(const char* op, std::initializer_list<const char*> in_host_memory,
                  tf::OpKernel* (*make)(tf::OpKernelConstruction* construction)) {
  if (!HasGpuEngine()) return false;
  tf::KernelDefBuilder builder(op);
  builder.Device(tf::DEVICE_GPU);
  for (const char* argument : in_host_memory) builder.HostMemory(argument);
  // TensorFlow takes the definition over.
  tf::kernel_factory::OpKernelRegistrar(builder.Build(), op, make);
  return true;
}

}  // namespace sok
