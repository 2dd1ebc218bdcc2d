// What a CUDA thread may touch.
#ifndef SOK_CUDA_ON_HOST_ENGINE_ACCESS_H_
#define SOK_CUDA_ON_HOST_ENGINE_ACCESS_H_

#include <cstddef>

#include "cuda/on_host/engine/block.h"

namespace sok::on_host {

enum class Memory { kOwnStack, kGlobal, kShared, kConstant, kForbidden };

// What the `bytes` bytes at `address` are to the CUDA thread. kForbidden: memory of the host that is not
// pinned, of another thread, beyond an allocation, or freed.
Memory MemoryOf(const Fiber& fiber, const void* address, size_t bytes);

// Of memory that is kForbidden, for reports.
std::string DescribeForbidden(const Fiber& fiber, const void* address);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_ACCESS_H_
