// Kernels for GPUs. They are the classes of the CPU's kernels: a kernel calls the engine of its tables,
// whichever that is.
#ifndef SOK_SOK_OPS_KERNELS_GPU_KERNELS_H_
#define SOK_SOK_OPS_KERNELS_GPU_KERNELS_H_

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>

#include "sok_ops/engines/has_gpu_engine.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// Registers a kernel of `op` for GPUs if HasGpuEngine. The inputs and outputs `in_host_memory` are in host
// memory, all others in the device's. Returns whether it did.
bool AddGpuKernel(const char* op, std::initializer_list<const char*> in_host_memory,
                  tensorflow::OpKernel* (*make)(tensorflow::OpKernelConstruction* construction));

// The name of the engine of the kernel's device: the device's type, in lower case.
inline std::string EngineOfDevice(const tensorflow::OpKernelConstruction& construction) {
  std::string name = construction.device_type().type_string();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

}  // namespace sok

// SOK_GPU_KERNEL(Class, "SokOp", "handles", ...) in namespace sok: AddGpuKernel, when the library is loaded.
#define SOK_GPU_KERNEL(Class, op, ...) SOK_GPU_KERNEL_OF(__COUNTER__, Class, op, __VA_ARGS__)
#define SOK_GPU_KERNEL_OF(number, Class, op, ...) SOK_GPU_KERNEL_NAMED(number, Class, op, __VA_ARGS__)
#define SOK_GPU_KERNEL_NAMED(number, Class, op, ...)                                                       \
  [[maybe_unused]] const bool kGpuKernel##number = ::sok::AddGpuKernel(                                    \
      op, {__VA_ARGS__}, [](::tensorflow::OpKernelConstruction* construction) -> ::tensorflow::OpKernel* { \
        return new Class(construction);                                                                    \
      })

#endif  // SOK_SOK_OPS_KERNELS_GPU_KERNELS_H_
