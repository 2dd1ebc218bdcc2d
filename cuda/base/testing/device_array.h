// Test support: arrays in the device's memory, streams, and tests whose kernels are lambdas.
#ifndef SOK_CUDA_BASE_TESTING_DEVICE_ARRAY_H_
#define SOK_CUDA_BASE_TESTING_DEVICE_ARRAY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace sok {

// A copy of `values` in device memory that this object owns. A failure fails the running test.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, size_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }

  // Waits for the device and returns the values.
  std::vector<T> Fetch() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

// The bits of floats, because -0 equals 0 when compared as a float.
inline std::vector<uint32_t> BitsOf(const std::vector<float>& floats) {
  std::vector<uint32_t> bits(floats.size());
  if (!floats.empty()) std::memcpy(bits.data(), floats.data(), floats.size() * sizeof(float));
  return bits;
}

// A stream that other streams' work waits for only if something says so. On the host, its work runs when
// something waits for it (cuda/on_host/engine/streams.h); so a test shows what is missing between two streams
// by the one that it waits for first.
class DeviceStream {
 public:
  DeviceStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~DeviceStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  cudaStream_t get() const { return stream_; }
  void Wait() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

// For kernels that, unlike those of Launch (cuda/base/launch.h), do not await those before them.
inline cudaLaunchConfig_t LaunchOf(dim3 grid, dim3 block, size_t shared_bytes = 0,
                                   cudaStream_t stream = nullptr) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return config;
}

}  // namespace sok

// TEST(SUITE, NAME) whose body may define __device__ lambdas: nvcc does not allow them in GoogleTest's
// private functions.
#define SOK_DEVICE_TEST(SUITE, NAME)         \
  void SUITE##NAME##Body();                  \
  TEST(SUITE, NAME) { SUITE##NAME##Body(); } \
  void SUITE##NAME##Body()

#endif  // SOK_CUDA_BASE_TESTING_DEVICE_ARRAY_H_
