// The engines as parameters of the contract suites. The GPU's memory is the device's.
#ifndef SOK_CUDA_ENGINE_TESTING_GPU_CASE_H_
#define SOK_CUDA_ENGINE_TESTING_GPU_CASE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "cc/cpu/engine/cpu_engine.h"
#include "cc/engine/contract/engine_case.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/engine/gpu_engine.h"
#include "gtest/gtest.h"

namespace sok {

// Memory of the device, and a stream that is not the default one.
class GpuTestMemory : public EngineMemory {
 public:
  void* Allocate(int64_t bytes) override {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, static_cast<size_t>(bytes)), cudaSuccess);
    return memory;
  }
  void Free(void* memory) override { EXPECT_EQ(cudaFree(memory), cudaSuccess); }
  void CopyIn(void* to, const void* from, int64_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void CopyOut(void* to, const void* from, int64_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void* stream() override { return own_stream().get(); }
  const DeviceStream& own_stream() {
    if (!stream_.has_value()) stream_.emplace();
    return *stream_;
  }

 private:
  void Copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    const DeviceStream& on = own_stream();
    EXPECT_EQ(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, on.get()), cudaSuccess);
    on.Wait();
  }

  std::optional<DeviceStream> stream_;
};

inline EngineCase CpuCase() {
  static CpuEngine* const engine = new CpuEngine;
  EngineCase engine_case;
  engine_case.name = "cpu";
  engine_case.engine = engine;
  return engine_case;
}

inline EngineCase GpuCase() {
  // Never destroyed: the runtime destroys streams and devices before a program's static objects.
  static GpuEngine* const engine = new GpuEngine;
  static const auto* const memory = new std::shared_ptr<GpuTestMemory>(new GpuTestMemory);
  EngineCase engine_case;
  engine_case.name = "gpu";
  engine_case.engine = engine;
  engine_case.memory = *memory;
  // The engine does not use the host's threads.
  engine_case.threads = {1};
  engine_case.is_slow = true;
  // Other tests over ranks have 2 and 3.
#if defined(__SANITIZE_ADDRESS__)
  engine_case.is_slowest = true;
  engine_case.ranks = {1, 4};
#elif defined(__SANITIZE_THREAD__)
  engine_case.is_slowest = true;
  engine_case.ranks = {2, 3};
#endif
  return engine_case;
}

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_TESTING_GPU_CASE_H_
