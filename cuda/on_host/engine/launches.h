// Launches of kernels, and their attributes.
#ifndef SOK_CUDA_ON_HOST_ENGINE_LAUNCHES_H_
#define SOK_CUDA_ON_HOST_ENGINE_LAUNCHES_H_

#include <cstddef>

namespace sok::on_host {

// The most dynamic shared memory that a launch of the kernel may ask for. Thread-safe.
size_t MaxDynamicSharedOf(const void* kernel);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_LAUNCHES_H_
