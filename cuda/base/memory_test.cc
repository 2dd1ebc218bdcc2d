// Device buffers, pinned memory, and the allocators behind them.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/base/async_allocator.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/pinned.h"
#include "cuda/base/pinned_allocator.h"
#include "cuda/device_array.h"

namespace sok {
namespace {

// Counts what is allocated.
class CountingAllocator : public DeviceAllocator {
 public:
  StatusOr<void*> Allocate(cudaStream_t stream, int64_t bytes) override {
    StatusOr<void*> memory = allocator_.Allocate(stream, bytes);
    if (memory.ok() && memory.value() != nullptr) ++live;
    return memory;
  }
  void Free(cudaStream_t stream, void* memory) override {
    if (memory != nullptr) --live;
    allocator_.Free(stream, memory);
  }

  int live = 0;

 private:
  AsyncAllocator allocator_;
};

class AllocatorsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(AllocatorsTest, ABufferFreesItsMemoryOnce) {
  CountingAllocator allocator;
  {
    StatusOr<DeviceBuffer<int>> made = DeviceBuffer<int>::Allocate(&allocator, nullptr, 100);
    ASSERT_TRUE(made.ok());
    DeviceBuffer<int> buffer = std::move(made.value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(buffer.size(), 100);
    EXPECT_EQ(buffer.bytes(), 400);
    EXPECT_EQ(allocator.live, 1);
    DeviceBuffer<int> other = std::move(buffer);
    EXPECT_EQ(allocator.live, 1);
    EXPECT_EQ(other.size(), 100);
    other = std::move(other);
    EXPECT_EQ(other.size(), 100);
    other = std::move(DeviceBuffer<int>::Allocate(&allocator, nullptr, 7).value());
    EXPECT_EQ(allocator.live, 1);
    EXPECT_EQ(other.size(), 7);
    other.Free();
    EXPECT_EQ(allocator.live, 0);
    EXPECT_EQ(other.size(), 0);
  }
  EXPECT_EQ(allocator.live, 0);
}

TEST_F(AllocatorsTest, NoElementsNeedNoMemory) {
  CountingAllocator allocator;
  const StatusOr<DeviceBuffer<double>> buffer = DeviceBuffer<double>::Allocate(&allocator, nullptr, 0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer.value().data(), nullptr);
  EXPECT_EQ(allocator.live, 0);
}

TEST_F(AllocatorsTest, MemoryThatIsNotThereIsAnError) {
  AsyncAllocator allocator;
  for (const int64_t size : {std::numeric_limits<int64_t>::max(), int64_t{1} << 58, int64_t{1} << 48}) {
    const StatusOr<DeviceBuffer<double>> buffer = DeviceBuffer<double>::Allocate(&allocator, nullptr, size);
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted) << size;
  }
  EXPECT_EQ(PinnedBuffer<double>::Allocate(std::numeric_limits<int64_t>::max()).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the error stays for others to find";
}

TEST_F(AllocatorsTest, PinnedMemoryIsTheHostsAndTheDevices) {
  StatusOr<PinnedBuffer<int>> buffer = PinnedBuffer<int>::Allocate(3);
  ASSERT_TRUE(buffer.ok());
  PinnedBuffer<int> pinned = std::move(buffer.value());
  for (int i = 0; i < 3; ++i) pinned.data()[i] = 10 + i;
  DeviceArray<int> array({0, 0, 0});
  ASSERT_EQ(cudaMemcpy(array.data(), pinned.data(), 12, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(array.Fetch(), (std::vector<int>{10, 11, 12}));
  EXPECT_EQ(PinnedBuffer<int>::Allocate(0).value().data(), nullptr);
}

TEST_F(AllocatorsTest, TheDevicesPoolKeepsWhatIsFreed) {
  constexpr int64_t kBytes = int64_t{4} << 20;
  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaDeviceGetMemPool(&pool, 0), cudaSuccess);
  uint64_t number = 0;
  ASSERT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &number), cudaSuccess);
  AsyncAllocator allocator;
  allocator.Free(nullptr, allocator.Allocate(nullptr, kBytes).value());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &number), cudaSuccess);
  EXPECT_GE(number, static_cast<uint64_t>(kBytes));
  // The pool is configured only once: a later setting by another part of the program stays.
  number = 12345;
  ASSERT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &number), cudaSuccess);
  allocator.Free(nullptr, allocator.Allocate(nullptr, kBytes).value());
  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &number), cudaSuccess);
  EXPECT_EQ(number, 12345u);
}

TEST_F(AllocatorsTest, FreedPinnedMemoryGoesOnceTheStreamIsThere) {
  PinnedAllocator allocator;
  void* const memory = allocator.Allocate(nullptr, 4000).value();
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  allocator.Free(nullptr, memory);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  allocator.Free(nullptr, allocator.Allocate(nullptr, 8).value());
  (void)cudaPointerGetAttributes(&attributes, memory);
  EXPECT_NE(attributes.type, cudaMemoryTypeHost);
  cudaGetLastError();
}

TEST_F(AllocatorsTest, FreedPinnedMemoryStaysWhileTheStreamUsesIt) {
  DeviceArray<int> array(std::vector<int>(1000, 0));
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  {
    PinnedAllocator allocator;
    for (int round = 0; round < 5; ++round) {
      void* const memory = allocator.Allocate(stream, 4000).value();
      ASSERT_NE(memory, nullptr);
      std::memset(memory, round + 1, 4000);
      ASSERT_EQ(cudaMemcpyAsync(array.data(), memory, 4000, cudaMemcpyHostToDevice, stream), cudaSuccess);
      allocator.Free(stream, memory);
    }
    EXPECT_EQ(allocator.Allocate(stream, 0).value(), nullptr);
    allocator.Free(stream, nullptr);
  }
  EXPECT_EQ(array.Fetch(), std::vector<int>(1000, 0x05050505));
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace sok
