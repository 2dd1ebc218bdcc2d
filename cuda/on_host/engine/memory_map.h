// Memory straight from the system, which the sanitizers do not see being mapped: they would clear the shadow
// of all of it, and treat it as written by the thread that maps it.
#ifndef SOK_CUDA_ON_HOST_ENGINE_MEMORY_MAP_H_
#define SOK_CUDA_ON_HOST_ENGINE_MEMORY_MAP_H_

#include <cstddef>

namespace sok::on_host {

constexpr size_t kPage = 4096;  // bytes

// Zeros, backed by memory once touched, followed by `forbidden` bytes that nothing may touch. Both are whole
// pages. Ends the process if the system refuses.
char* MapMemory(size_t bytes, size_t forbidden);
// From now on nothing may touch the pages.
void ForbidMemory(char* begin, size_t bytes);
// The same, and the system gets their memory back. New pages take their place: protected ones would stay a
// mapping of their own, apart from forbidden pages beside them, and the system limits a process to 65530.
void ReturnMemory(char* begin, size_t bytes);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_MEMORY_MAP_H_
