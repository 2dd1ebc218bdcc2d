// The runtime API's errors and ordering, as CUDA documents them. The same test runs on a device.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "cuda/base/testing/device_array.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

__global__ void AddKernel(int* data, int n, int value) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] += value;
}

cudaError_t Add(cudaStream_t stream, int* data, int n, int value) {
  const cudaLaunchConfig_t config = LaunchOf(static_cast<unsigned>(n + 63) / 64, 64, 0, stream);
  return cudaLaunchKernelEx(&config, AddKernel, data, n, value);
}

SOK_DEVICE_TEST(LaunchTest, RefusesWhatTheDeviceCannotRun) {
  struct Case {
    dim3 grid, block;
    size_t shared;
    cudaError_t error;
  };
  const Case cases[] = {
      {dim3(1), dim3(1), 0, cudaSuccess},
      {dim3(1), dim3(1024), 48 << 10, cudaSuccess},
      {dim3(1, 65535), dim3(1), 0, cudaSuccess},
      {dim3(1), dim3(4, 4, 64), 0, cudaSuccess},
      {dim3(0), dim3(1), 0, cudaErrorInvalidValue},
      {dim3(1, 0), dim3(1), 0, cudaErrorInvalidValue},
      {dim3(1), dim3(0), 0, cudaErrorInvalidValue},
      {dim3(1), dim3(1025), 0, cudaErrorInvalidValue},
      {dim3(1), dim3(33, 32), 0, cudaErrorInvalidValue},
      {dim3(1), dim3(1, 1, 65), 0, cudaErrorInvalidValue},
      {dim3(1, 65536), dim3(1), 0, cudaErrorInvalidValue},
      {dim3(0x80000000u), dim3(1), 0, cudaErrorInvalidValue},
      {dim3(1), dim3(1), (48 << 10) + 1, cudaErrorInvalidValue},
  };
  for (const Case& c : cases) {
    const cudaLaunchConfig_t config = LaunchOf(c.grid, c.block, c.shared);
    EXPECT_EQ(cudaLaunchKernelEx(&config, AddKernel, static_cast<int*>(nullptr), 0, 0), c.error)
        << c.grid.x << " " << c.grid.y << ", " << c.block.x << " " << c.block.y << " " << c.block.z << ", "
        << c.shared;
    EXPECT_EQ(cudaGetLastError(), c.error);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

SOK_DEVICE_TEST(LaunchTest, ArgumentsAreCopied) {
  DeviceArray<int> data(std::vector<int>(100, 0));
  int value = 3;
  ASSERT_EQ(Add(nullptr, data.data(), 100, value), cudaSuccess);
  value = 1000;
  EXPECT_EQ(data.Fetch(), std::vector<int>(100, 3));
}

SOK_DEVICE_TEST(MemoryTest, ErrorsOfAllocations) {
  void* address = &address;
  EXPECT_EQ(cudaMalloc(&address, 0), cudaSuccess);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&address, size_t{1} << 60), cudaErrorMemoryAllocation);
  cudaGetLastError();
  int on_host = 0;
  EXPECT_EQ(cudaFree(&on_host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

SOK_DEVICE_TEST(MemoryTest, AddressesAreAligned) {
  for (size_t bytes : {1, 7, 255, 256, 4097}) {
    void* address = nullptr;
    ASSERT_EQ(cudaMalloc(&address, bytes), cudaSuccess);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 256, 0u);
    ASSERT_EQ(cudaFree(address), cudaSuccess);
  }
}

SOK_DEVICE_TEST(MemoryTest, KindsOfPointers) {
  void *device = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 16), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 16), cudaSuccess);
  int on_host = 0;
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, device), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &on_host), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  cudaFree(device);
  cudaFreeHost(pinned);
}

SOK_DEVICE_TEST(MemoryTest, CopiesBetweenAllKindsOfMemory) {
  constexpr size_t kBytes = 5 * sizeof(int);
  const std::vector<int> values = {1, 2, 3, 4, 5};
  int *device = nullptr, *other = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&other, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, kBytes), cudaSuccess);
  std::vector<int> back(5, 0);
  ASSERT_EQ(cudaMemcpy(device, values.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(other, device, kBytes, cudaMemcpyDeviceToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(pinned, other, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(std::memcmp(pinned, values.data(), kBytes), 0);
  ASSERT_EQ(cudaMemcpy(back.data(), pinned, kBytes, cudaMemcpyHostToHost), cudaSuccess);
  EXPECT_EQ(back, values);
  ASSERT_EQ(cudaMemset(device, 0xff, 2 * sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(back.data(), device, kBytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(back, (std::vector<int>{-1, -1, 3, 4, 5}));
  // A kernel uses pinned memory directly.
  ASSERT_EQ(Add(nullptr, pinned, 5, 10), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(pinned[4], 15);
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device, values.data(), kBytes, static_cast<cudaMemcpyKind>(9)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidMemcpyDirection);
  cudaFree(device);
  cudaFree(other);
  cudaFreeHost(pinned);
}

uint64_t PoolAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  uint64_t value = 0;
  EXPECT_EQ(cudaMemPoolGetAttribute(pool, attribute, &value), cudaSuccess);
  return value;
}

// Allocates and frees memory of the pool, and waits.
void UsePool(size_t bytes) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMallocAsync(&memory, bytes, nullptr), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(memory, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}

SOK_DEVICE_TEST(MemoryTest, APoolKeepsAsMuchAsItsThreshold) {
  constexpr size_t kBytes = size_t{4} << 20;
  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaDeviceGetMemPool(&pool, 0), cudaSuccess);
  for (uint64_t threshold : {uint64_t{0}, UINT64_MAX, uint64_t{0}}) {
    ASSERT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), cudaSuccess);
    EXPECT_EQ(PoolAttribute(pool, cudaMemPoolAttrReleaseThreshold), threshold);
    const uint64_t used = PoolAttribute(pool, cudaMemPoolAttrUsedMemCurrent);
    UsePool(kBytes);
    EXPECT_EQ(PoolAttribute(pool, cudaMemPoolAttrUsedMemCurrent), used);
    const bool keeps = PoolAttribute(pool, cudaMemPoolAttrReservedMemCurrent) >= used + kBytes;
    EXPECT_EQ(keeps, threshold > 0);
    ASSERT_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
    EXPECT_LT(PoolAttribute(pool, cudaMemPoolAttrReservedMemCurrent), used + kBytes);
  }
  EXPECT_NE(cudaDeviceGetMemPool(nullptr, 0), cudaSuccess);
  EXPECT_NE(cudaDeviceGetMemPool(&pool, 1000), cudaSuccess);
  cudaGetLastError();
}

// What is in a stream happens in order.
SOK_DEVICE_TEST(StreamTest, WorkOfAStreamIsInOrder) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  int* data = nullptr;
  int* result = nullptr;
  ASSERT_EQ(cudaMallocHost(&result, 100 * sizeof(int)), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&data, 100 * sizeof(int), stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(data, 0, 100 * sizeof(int), stream), cudaSuccess);
  for (int i = 1; i <= 10; ++i) ASSERT_EQ(Add(stream, data, 100, i), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(result, data, 100 * sizeof(int), cudaMemcpyDeviceToHost, stream), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(data, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(std::vector<int>(result, result + 100), std::vector<int>(100, 55));
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  cudaFreeHost(result);
}

SOK_DEVICE_TEST(StreamTest, EventsOrderStreams) {
  constexpr int kStreams = 3, kRounds = 6, kInts = 1000;
  cudaStream_t streams[kStreams];
  cudaEvent_t done[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    ASSERT_EQ(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&done[s], cudaEventDisableTiming), cudaSuccess);
    // Waiting for an event that was never recorded does not block.
    ASSERT_EQ(cudaStreamWaitEvent(streams[s], done[s], 0), cudaSuccess);
    ASSERT_EQ(cudaEventQuery(done[s]), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(done[s]), cudaSuccess);
  }
  DeviceArray<int> data(std::vector<int>(kInts, 0));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  // Each adds after the other.
  for (int r = 0; r < kRounds; ++r) {
    const int s = r % kStreams, before = (r + kStreams - 1) % kStreams;
    if (r > 0) {
      ASSERT_EQ(cudaStreamWaitEvent(streams[s], done[before], 0), cudaSuccess);
    }
    ASSERT_EQ(Add(streams[s], data.data(), kInts, 1 << r), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(done[s], streams[s]), cudaSuccess);
  }
  while (cudaEventQuery(done[(kRounds - 1) % kStreams]) == cudaErrorNotReady) {
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(data.Fetch(), std::vector<int>(kInts, (1 << kRounds) - 1));
  for (int s = 0; s < kStreams; ++s) {
    EXPECT_EQ(cudaEventDestroy(done[s]), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(streams[s]), cudaSuccess);
  }
}

// Streams that are not made "non-blocking" and the null stream wait for each other.
SOK_DEVICE_TEST(StreamTest, TheNullStreamOrdersBlockingStreams) {
  cudaStream_t first = nullptr, second = nullptr;
  ASSERT_EQ(cudaStreamCreate(&first), cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&second), cudaSuccess);
  DeviceArray<int> data(std::vector<int>(10, 0));
  ASSERT_EQ(Add(first, data.data(), 10, 1), cudaSuccess);
  ASSERT_EQ(Add(nullptr, data.data(), 10, 2), cudaSuccess);
  ASSERT_EQ(Add(second, data.data(), 10, 4), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(data.Fetch(), std::vector<int>(10, 7));
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

SOK_DEVICE_TEST(StreamTest, TimeBetweenEvents) {
  cudaEvent_t begin = nullptr, end = nullptr, untimed = nullptr;
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {begin, end, untimed}) ASSERT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(untimed), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, untimed), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  for (cudaEvent_t event : {begin, end, untimed}) cudaEventDestroy(event);
}

struct HostCall {
  int* value;
  int expected;
  bool was_right;
  cudaError_t error;
};

// A function of the host in a stream comes after what is before it, and may not use CUDA.
SOK_DEVICE_TEST(StreamTest, HostFunctionsAreInOrder) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  int* value = nullptr;
  ASSERT_EQ(cudaMallocHost(&value, sizeof(int)), cudaSuccess);
  *value = 1;
  HostCall call = {value, 3, false, cudaSuccess};
  ASSERT_EQ(Add(stream, value, 1, 2), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(
                stream,
                [](void* data) {
                  auto* const c = static_cast<HostCall*>(data);
                  c->was_right = *c->value == c->expected;
                  c->error = cudaDeviceSynchronize();
                },
                &call),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(call.was_right);
  EXPECT_EQ(call.error, cudaErrorNotPermitted);
  cudaGetLastError();
  cudaStreamDestroy(stream);
  cudaFreeHost(value);
}

SOK_DEVICE_TEST(DeviceTest, Properties) {
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.warpSize, 32);
  EXPECT_GE(properties.major, 8);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 99), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  cudaGetLastError();
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

// The error of a call in a forked process.
template <typename Call>
int ErrorInForkedProcess(const Call& call) {
  const pid_t forked = fork();
  if (forked == 0) _exit(call());
  int status = 0;
  EXPECT_EQ(waitpid(forked, &status, 0), forked);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

// The number of devices is still known there, but the device cannot be used.
SOK_DEVICE_TEST(DeviceTest, CannotBeUsedInAForkedProcess) {
  int devices = 0;
  size_t free_bytes = 0, total_bytes = 0;
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  const auto allocate = [&] { return cudaMalloc(&memory, 16); };
  ASSERT_EQ(allocate(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(ErrorInForkedProcess([&] { return cudaGetDeviceCount(&devices); }), cudaSuccess);
  EXPECT_EQ(ErrorInForkedProcess(allocate), cudaErrorInitializationError);
  EXPECT_EQ(ErrorInForkedProcess([&] { return cudaStreamCreate(&stream); }), cudaErrorInitializationError);
  EXPECT_EQ(ErrorInForkedProcess([&] { return cudaMemGetInfo(&free_bytes, &total_bytes); }),
            cudaErrorInitializationError);
  ASSERT_EQ(allocate(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

}  // namespace
}  // namespace sok
