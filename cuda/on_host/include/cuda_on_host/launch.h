// cudaLaunchKernelEx. It is CUDA's own and needs no <<<>>>, so nvcc and g++ compile the same launcher.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_LAUNCH_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_LAUNCH_H_

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_on_host/engine.h"
#include "cuda_on_host/runtime_api.h"

enum cudaLaunchAttributeID {
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
union cudaLaunchAttributeValue {
  char pad[64];
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

namespace sok::on_host {

// Checks the configuration and enqueues the call.
cudaError_t EnqueueKernel(const cudaLaunchConfig_t* config, KernelCall call);

template <typename... Parameters>
void RunKernel(const void* kernel, const void* arguments) {
  std::apply(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(kernel)),
             *static_cast<const std::tuple<std::remove_const_t<Parameters>...>*>(arguments));
}

}  // namespace sok::on_host

// The arguments are copied before it returns.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  using Copies = std::tuple<std::remove_const_t<Parameters>...>;
  static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                "as many arguments as the kernel has parameters");
  static_assert((!std::is_reference_v<Parameters> && ...), "a kernel takes no references");
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "arguments are copied to the device byte by byte");
  return sok::on_host::EnqueueKernel(
      config, {reinterpret_cast<const void*>(kernel), &sok::on_host::RunKernel<Parameters...>,
               std::make_shared<Copies>(std::forward<Arguments>(arguments)...), sizeof(Copies)});
}

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_LAUNCH_H_
