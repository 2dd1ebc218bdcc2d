// Registers kernels. Those for GPUs are the classes of the CPU's: a kernel calls the engine of its tables,
// whichever that is.
#ifndef SOK_SOK_OPS_KERNELS_GPU_KERNELS_H_
#define SOK_SOK_OPS_KERNELS_GPU_KERNELS_H_

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>

#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// Whether the op library is linked with the engine of GPUs: see sok_ops/engines.
bool HasGpuEngine();

// Registers a kernel of `op` for GPUs if HasGpuEngine. The inputs and outputs `in_host_memory` are in host
// memory, all others in the device's. Returns whether it did.
inline bool AddGpuKernel(const char* op, std::initializer_list<const char*> in_host_memory,
                         tensorflow::OpKernel* (*make)(tensorflow::OpKernelConstruction* construction)) {
  if (!HasGpuEngine()) return false;
  tensorflow::KernelDefBuilder builder(op);
  builder.Device(tensorflow::DEVICE_GPU);
  for (const char* argument : in_host_memory) builder.HostMemory(argument);
  // TensorFlow takes the definition over.
  tensorflow::kernel_factory::OpKernelRegistrar(builder.Build(), op, make);
  return true;
}

// The same, and one for CPUs in any case.
inline bool AddKernel(const char* op, std::initializer_list<const char*> in_host_memory,
                      tensorflow::OpKernel* (*make)(tensorflow::OpKernelConstruction* construction)) {
  const auto* const on_cpu = tensorflow::KernelDefBuilder(op).Device(tensorflow::DEVICE_CPU).Build();
  tensorflow::kernel_factory::OpKernelRegistrar(on_cpu, op, make);
  return AddGpuKernel(op, in_host_memory, make);
}

// The name of the engine of the kernel's device: the device's type, in lower case.
inline std::string EngineOfDevice(const tensorflow::OpKernelConstruction& construction) {
  std::string name = construction.device_type().type_string();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

}  // namespace sok

// SOK_KERNEL(Class, "SokOp", "handles", ...) in namespace sok: AddKernel, when the library is loaded.
#define SOK_KERNEL(Class, op, ...) SOK_KERNEL_BY(AddKernel, __COUNTER__, Class, op, __VA_ARGS__)
// AddGpuKernel, for ops that only GPUs have.
#define SOK_GPU_KERNEL(Class, op, ...) SOK_KERNEL_BY(AddGpuKernel, __COUNTER__, Class, op, __VA_ARGS__)
#define SOK_KERNEL_BY(Add, number, Class, op, ...) SOK_KERNEL_NAMED(Add, number, Class, op, __VA_ARGS__)
#define SOK_KERNEL_NAMED(Add, number, Class, op, ...)                                                      \
  [[maybe_unused]] const bool kKernel##number = ::sok::Add(                                                \
      op, {__VA_ARGS__}, [](::tensorflow::OpKernelConstruction* construction) -> ::tensorflow::OpKernel* { \
        return new Class(construction);                                                                    \
      })

#endif  // SOK_SOK_OPS_KERNELS_GPU_KERNELS_H_
