#ifndef SOK_SOK_OPS_KERNELS_ENGINE_OF_DEVICE_H_
#define SOK_SOK_OPS_KERNELS_ENGINE_OF_DEVICE_H_

#include <algorithm>
#include <cctype>
#include <string>

#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The name of the engine of the kernel's device: the device's type, in lower case.
inline std::string EngineOfDevice(const tensorflow::OpKernelConstruction& construction) {
  std::string name = construction.device_type().type_string();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_ENGINE_OF_DEVICE_H_
