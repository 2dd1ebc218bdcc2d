#include <algorithm>
#include <cstdlib>

#include "sok_ops/horovod/device_memory.h"
#include "sok_ops/horovod/horovod_queue.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// Horovod's own op has a kernel for GPUs if and only if its alltoall was built for them.
bool HasGpuAlltoall() {
  const auto kernels = tf::GetRegisteredKernelsForOp("HorovodAlltoall").kernel();
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const auto& kernel) { return kernel.device_type() == tf::DEVICE_GPU; });
}

// Settings with which Horovod ends an operation on GPUs before it has run.
bool EndsEarly() {
  const auto is_set = [](const char* name) {
    const char* const text = std::getenv(name);
    return text != nullptr && std::strtol(text, nullptr, 10) > 0;
  };
  return is_set("HOROVOD_ENABLE_ASYNC_COMPLETION") || is_set("HOROVOD_ENABLE_XLA_OPS");
}

}  // namespace

bool HorovodTakesDeviceMemory() {
  static const bool takes = IsBuiltForGpus() && HasGpuAlltoall() && !EndsEarly();
  return takes;
}

}  // namespace sok
