// Mistakes within a kernel.
#include <cuda/atomic>

#include "cuda/base/launch.h"
#include "cuda/on_host/testing/planted_kernels.h"

namespace sok::on_host {
namespace {

template <typename T>
using Shared = cuda::atomic_ref<T, cuda::thread_scope_device>;

__device__ int Thread() { return static_cast<int>(threadIdx.x); }

// ---- Memory. ----

__global__ void PastEnd(int* data, int n) {
  if (Thread() == 0) data[n] = 1;
}

__global__ void PastDynamicShared(int* data, int n) {
  if (Thread() > 0) return;
  int* const shared = DynamicShared<int>();
  shared[n] = 1;
  data[0] = shared[n];
}

__global__ void PastStaticShared(int* data, int n) {
  __shared__ int values[kPlantedThreads];
  values[Thread() + n] = 1;
  __syncthreads();
  data[Thread()] = values[Thread()];
}

__global__ void MisalignedVector(int* data, int n) {
  const auto* const vectors = reinterpret_cast<const float4*>(data + n);
  data[Thread()] = static_cast<int>(vectors[Thread()].x);
}

__global__ void MisalignedAtomic(int* data, int n) {
  atomicAdd(reinterpret_cast<unsigned long long*>(data + n), 1ull);
}

__global__ void ReadsUnwritten(int* data, int n) { data[Thread()] = data[n - 1]; }

__global__ void ReadsUnwrittenShared(int* data, int) {
  __shared__ int values[kPlantedThreads];
  if (Thread() % 2 == 0) values[Thread()] = 0;
  __syncthreads();
  data[Thread()] = values[Thread()];
}

__global__ void LocalOfAnotherThread(int* data, int) {
  __shared__ int* published;
  int local = 7;
  if (Thread() == 1) published = &local;
  __syncthreads();
  if (Thread() == 0) data[0] = *published;
  __syncthreads();
}

// More local variables than fit on a thread's stack.
__global__ void StackOverflow(int* data, int n) {
  volatile int local[100000];
  for (int i = 0; i < n; ++i) local[i] = i;
  data[Thread()] = local[n - 1];
}

// ---- Barriers and warps. ----

__global__ void DivergentBarrier(int* data, int) {
  if (Thread() < kPlantedThreads / 2) __syncthreads();
  data[Thread()] = 1;
}

__global__ void TwoBarriers(int* data, int) {
  if (Thread() < kPlantedThreads / 2) {
    __syncthreads();
  } else {
    data[Thread()] = 1;
    __syncthreads();
  }
}

__global__ void BarrierAfterReturn(int*, int) {
  if (Thread() >= kPlantedThreads - 1) return;
  __syncthreads();
}

__global__ void MasksDiffer(int* data, int) {
  const unsigned mask = Thread() % 32 < 16 ? kAllLanes : 0xffff0000u;
  data[Thread()] = __shfl_sync(mask, Thread(), 16);
}

__global__ void LaneMissing(int* data, int) {
  if (Thread() % 32 != 5) data[Thread()] = __shfl_sync(kAllLanes, Thread(), 0);
}

__global__ void LaneNotInMask(int* data, int) {
  data[Thread()] = static_cast<int>(__match_any_sync(0xfffffffeu, Thread() % 4));
}

__global__ void ReadsLaneOutsideMask(int* data, int) {
  if (Thread() % 32 < 16) data[Thread()] = __shfl_sync(0xffffu, Thread(), 20);
}

// ---- Order. ----

__global__ void NoBarrier(int* data, int) {
  __shared__ int values[kPlantedThreads];
  values[Thread()] = Thread();
  data[blockIdx.x * kPlantedThreads + threadIdx.x] = values[kPlantedThreads - 1 - Thread()];
}

// Relies on lanes running in lockstep: a vote does not order memory.
__global__ void InStep(int* data, int) {
  __shared__ int values[kPlantedThreads];
  values[Thread()] = Thread();
  const int lanes = __popc(__ballot_sync(kAllLanes, 1));
  data[blockIdx.x * kPlantedThreads + threadIdx.x] = values[Thread() ^ 1] + lanes;
}

__global__ void LostUpdates(int* data, int) {
  const int old = Shared<int>(data[0]).load(cuda::memory_order_relaxed);
  Shared<int>(data[0]).store(old + 1, cuda::memory_order_relaxed);
}

__global__ void LostPlainUpdates(int* data, int) { data[0] = data[0] + 1; }

// One block signals the others that a value is there: too early, or with a memory order that does not publish
// the value.
template <bool kTooEarly>
__global__ void Publish(int* data, int) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    if (kTooEarly) Shared<int>(data[1]).store(1, cuda::memory_order_release);
    data[0] = 42;
    if (!kTooEarly) Shared<int>(data[1]).store(1, cuda::memory_order_relaxed);
  } else if (Shared<int>(data[1]).load(cuda::memory_order_acquire) == 1) {
    data[1 + blockIdx.x] = data[0] + 1;
  }
}

__global__ void ScopeOfBlock(int* data, int) {
  cuda::atomic_ref<int, cuda::thread_scope_block>(data[0]).fetch_add(1, cuda::memory_order_relaxed);
}

// A lock that its holder never releases.
__global__ void NeverEnds(int* data, int) {
  while (atomicCAS(&data[0], 0, 1) != 0) {
  }
}

__global__ void Slow(int* data, int n) {
  for (int i = 0; i < n; ++i) atomicAdd(&data[0], 1);
}

// May start early.
__global__ void NeverWaits(int*, int) {}

__global__ void ReadsBeforeItWaits(int* data, int n) {
  const int value = data[Thread()];
  cudaGridDependencySynchronize();
  data[Thread()] = value + n;
}

__global__ void AddsBeforeItWaits(int* data, int n) {
  atomicAdd(&data[n], 1);
  cudaGridDependencySynchronize();
}

__global__ void Copy(int* to, const int* from) { to[Thread()] = from[Thread()]; }

cudaError_t Launch(cudaStream_t stream, PlantedKernel kernel, int blocks, int* data, int n) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.attrs = &early;
  config.numAttrs = kernel == NeverWaits || kernel == ReadsBeforeItWaits || kernel == AddsBeforeItWaits;
  config.gridDim = static_cast<unsigned>(blocks);
  config.blockDim = kPlantedThreads;
  config.dynamicSmemBytes = 64;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, data, n);
}

}  // namespace

#define SOK_PLANTED(NAME, KERNEL, BLOCKS)                           \
  cudaError_t Launch##NAME(cudaStream_t stream, int* data, int n) { \
    return Launch(stream, KERNEL, BLOCKS, data, n);                 \
  }
SOK_PLANTED_KERNELS(SOK_PLANTED)
#undef SOK_PLANTED

cudaError_t LaunchCopy(cudaStream_t stream, int* to, const int* from) {
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = kPlantedThreads;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, Copy, to, from);
}

}  // namespace sok::on_host
