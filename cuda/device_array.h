// Test support: arrays in device memory, and a check for a device.
#ifndef SOK_CUDA_DEVICE_ARRAY_H_
#define SOK_CUDA_DEVICE_ARRAY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace sok {

// Whether a test on the device can run. Without a driver the runtime reports an error; it does not crash.
inline bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

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

}  // namespace sok

#endif  // SOK_CUDA_DEVICE_ARRAY_H_
