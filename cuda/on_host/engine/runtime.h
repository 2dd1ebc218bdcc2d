// What the parts of the runtime API share.
#ifndef SOK_CUDA_ON_HOST_ENGINE_RUNTIME_H_
#define SOK_CUDA_ON_HOST_ENGINE_RUNTIME_H_

#include "cuda/on_host/engine/device_memory.h"
#include "cuda/on_host/engine/streams.h"
#include "cuda_on_host/runtime_api.h"

namespace sok::on_host {

// Keeps an error for cudaGetLastError of the calling thread, and returns it.
cudaError_t Result(cudaError_t error);

inline StreamQueues& Queues() { return StreamQueues::Get(); }
inline DeviceMemory& Memory() { return DeviceMemory::Get(); }

// The stream of a handle, for a call that a function of cudaLaunchHostFunc must not make.
cudaError_t FindStream(cudaStream_t handle, CUstream_st** stream);

enum class Side { kPageable, kPinned, kDevice, kInvalid };

// Where the bytes are. Invalid: not within one allocation that is alive or about to be.
Side SideOf(const void* address, size_t bytes);

// Of a small GPU of the Hopper kind.
constexpr size_t kDefaultMaxShared = size_t{48} << 10;

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_RUNTIME_H_
