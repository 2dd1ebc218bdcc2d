// How kernels are launched, and a thread's place in the grid. For .cu files and headers that only they
// include.
#ifndef SOK_CUDA_BASE_LAUNCH_H_
#define SOK_CUDA_BASE_LAUNCH_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/host_device.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/parts.h"

namespace sok {

// The place of a CUDA thread in a grid of one dimension, and the lanes of its warp.
//
//   for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) ...

constexpr int kLanesOfWarp = 32;
// The mask of all lanes, for functions of warps.
constexpr unsigned kAllLanes = 0xffffffffu;

// The first statement of each kernel that Launch launches. Such a kernel may start while those before it in
// its stream still run, so that its launch takes none of the stream's time. This waits until they have ended
// and what they wrote can be read, and lets the next kernel start.
__device__ __forceinline__ void AwaitPreviousKernels() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ __forceinline__ int64_t ThreadOfGrid() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ int64_t ThreadsOfGrid() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// All lanes' values, combined. All 32 lanes of the warp must call it, and all get the result. Not
// __reduce_add_sync and its like, which GPUs before sm_80 lack.
template <typename T, typename Combine>
__device__ __forceinline__ T ReduceInWarp(T value, const Combine& combine) {
  for (int mask = kLanesOfWarp / 2; mask > 0; mask /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, mask));
  }
  return value;
}

constexpr int kThreadsPerBlock = 256;

// For __launch_bounds__: `blocks`, or as many blocks of `threads` threads as fit on a multiprocessor. Those
// of sm_75 and sm_86 run 16 blocks at a time, with 1024 and 1536 threads; others run more.
constexpr int ResidentBlocks(int blocks, int threads) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
  return std::min({blocks, 1024 / threads, 16});
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 860
  return std::min({blocks, 1536 / threads, 16});
#else
  return std::min(blocks, 1536 / threads);
#endif
}

struct LaunchShape {
  int64_t blocks = 0;              // at most 2^31 - 1
  int threads = kThreadsPerBlock;  // of a block
  int64_t shared_bytes = 0;        // dynamic shared memory of a block
};

// More blocks than any device runs at the same time. Kernels loop (cuda/base/launch.h) over the rest.
constexpr int64_t kMaxBlocks = 1 << 16;

// Blocks for `n` pieces of work of `threads_per_piece` threads each: a power of two, at most
// `threads_per_block`. The kernel must loop, as there may be fewer threads than work.
inline LaunchShape ShapeFor(int64_t n, int threads_per_piece = 1, int threads_per_block = kThreadsPerBlock) {
  const int64_t per_block = threads_per_block / threads_per_piece;
  return {std::min((n + per_block - 1) / per_block, kMaxBlocks), threads_per_block, 0};
}

// Whether kernels of the current device may start before those before them have ended: from sm_90 on.
inline bool MayStartEarly() {
  static const std::vector<bool> may = [] {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) return std::vector<bool>();
    std::vector<bool> from_90(devices);
    for (int device = 0; device < devices; ++device) {
      int major = 0;
      const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
      from_90[device] = error == cudaSuccess && major >= 9;
    }
    return from_90;
  }();
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && device < static_cast<int>(may.size()) && may[device];
}

// Enqueues a kernel, whose first statement is AwaitPreviousKernels(), on the stream. Does nothing for 0
// blocks. `what` is the kernel's name, for the error; Internal if it cannot be launched. Only .cu files
// include this header.
template <typename... Parameters, typename... Arguments>
Status Launch(const char* what, cudaStream_t stream, const LaunchShape& shape, void (*kernel)(Parameters...),
              Arguments&&... arguments) {
  if (shape.blocks == 0) return OkStatus();
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(shape.blocks);
  config.blockDim = static_cast<unsigned>(shape.threads);
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = MayStartEarly() ? 1 : 0;
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
                    "cannot launch ", what);
}

// The dynamic shared memory of a block, for kernels compiled by nvcc and for the host.

// The bytes that the launch asked for (cudaLaunchConfig_t::dynamicSmemBytes), aligned to 16. Used in place of
// `extern __shared__ T name[]`, because code compiled for the host cannot find the block's memory by such a
// name.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
  static_assert(alignof(T) <= 16);
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char sok_dynamic_shared[];
  return reinterpret_cast<T*>(sok_dynamic_shared);
#else
  return static_cast<T*>(on_host::DynamicSharedMemory());
#endif
}

}  // namespace sok

#endif  // SOK_CUDA_BASE_LAUNCH_H_
