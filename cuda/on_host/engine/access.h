// What a CUDA thread may touch.
#ifndef SOK_CUDA_ON_HOST_ENGINE_ACCESS_H_
#define SOK_CUDA_ON_HOST_ENGINE_ACCESS_H_

#include <cstddef>

#include "cuda/on_host/engine/block.h"

namespace sok::on_host {

enum class Memory { kOwnStack, kGlobal, kShared, kConstant, kForbidden };

// What the CUDA thread may do with the `bytes` bytes at `address`. kForbidden: host memory that is not
// pinned, of another thread, beyond an allocation, or freed.
Memory MemoryOf(const Fiber& fiber, const void* address, size_t bytes);

// A description of kForbidden memory, for reports.
std::string DescribeForbidden(const Fiber& fiber, const void* address);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_ACCESS_H_
