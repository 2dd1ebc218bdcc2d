#include <utility>

#include "cuda/on_host/engine/grid.h"
#include "cuda/on_host/engine/runtime.h"
#include "cuda_on_host/launch.h"

namespace sok::on_host {
namespace {

constexpr unsigned kMaxGridX = 0x7fffffff, kMaxGridYZ = 0xffff, kMaxBlockZ = 64;

bool MayStartEarly(const cudaLaunchConfig_t& config) {
  for (unsigned a = 0; a < config.numAttrs; ++a) {
    const cudaLaunchAttribute& attribute = config.attrs[a];
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      return attribute.val.programmaticStreamSerializationAllowed != 0;
    }
  }
  return false;
}

cudaError_t CheckLaunch(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 ||
      grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ || block.z > kMaxBlockZ ||
      block.x > kMaxThreadsOfBlock || block.y > kMaxThreadsOfBlock ||
      block.x * block.y * block.z > kMaxThreadsOfBlock) {
    return cudaErrorInvalidValue;  // what CUDA 13.0 answers, and not cudaErrorInvalidConfiguration
  }
  if (config.dynamicSmemBytes > kMaxDynamicShared) return cudaErrorInvalidValue;
  return cudaSuccess;
}

void RunKernelWork(const LaunchShape& shape, const KernelCall& call, CUstream_st* stream) {
  Grid grid(shape, call, &stream->tsan_threads);
  {
    const AsStream as_stream(stream);
    grid.begin().Release();
  }
  grid.Run();
  const AsStream as_stream(stream);
  grid.end().Acquire();
}

cudaError_t Enqueue(const cudaLaunchConfig_t* config, KernelCall call) {
  if (config == nullptr) return cudaErrorInvalidValue;
  CUstream_st* stream = nullptr;
  if (const cudaError_t error = FindStream(config->stream, &stream)) return error;
  const cudaError_t error = CheckLaunch(*config, call.kernel);
  if (error != cudaSuccess) return error;
  const LaunchShape shape = {config->gridDim, config->blockDim, config->dynamicSmemBytes,
                             MayStartEarly(*config)};
  Queues().Enqueue(stream,
                   [shape, call = std::move(call)](CUstream_st* of) { RunKernelWork(shape, call, of); });
  CountKernel();
  return cudaSuccess;
}

}  // namespace

cudaError_t EnqueueKernel(const cudaLaunchConfig_t* config, KernelCall call) {
  return Result(Enqueue(config, std::move(call)));
}

}  // namespace sok::on_host
