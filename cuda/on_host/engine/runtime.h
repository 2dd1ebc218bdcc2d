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

// Whether memory, streams and events can be used here: not in a function of cudaLaunchHostFunc, and not in a
// process that was forked from one that has called the runtime.
cudaError_t CheckUsableHere();

// The stream of a handle, if it can be used here.
cudaError_t FindStream(cudaStream_t handle, CUstream_st** stream);

enum class Side { kPageable, kPinned, kDevice, kInvalid };

// Where the bytes are. Invalid if they are not within one allocation that is live or about to be.
Side SideOf(const void* address, size_t bytes);

// The limits of a small Hopper GPU.
constexpr size_t kDefaultMaxShared = size_t{48} << 10;

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_RUNTIME_H_
