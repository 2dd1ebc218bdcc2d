// Device buffers, pinned memory, and the allocators behind them.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda/base/allocators.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/parts.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/transfers.h"

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

TEST(AllocatorsTest, ABufferFreesItsMemoryOnce) {
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

TEST(AllocatorsTest, NoElementsNeedNoMemory) {
  CountingAllocator allocator;
  const StatusOr<DeviceBuffer<double>> buffer = DeviceBuffer<double>::Allocate(&allocator, nullptr, 0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer.value().data(), nullptr);
  EXPECT_EQ(allocator.live, 0);
}

TEST(AllocatorsTest, MemoryThatIsNotThereIsAnError) {
  AsyncAllocator allocator;
  for (const int64_t size : {std::numeric_limits<int64_t>::max(), int64_t{1} << 58, int64_t{1} << 48}) {
    const StatusOr<DeviceBuffer<double>> buffer = DeviceBuffer<double>::Allocate(&allocator, nullptr, size);
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted) << size;
  }
  EXPECT_EQ(PinnedBuffer<double>::Allocate(std::numeric_limits<int64_t>::max()).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the error stays for others to find";
}

TEST(AllocatorsTest, PinnedMemoryIsTheHostsAndTheDevices) {
  StatusOr<PinnedBuffer<int>> buffer = PinnedBuffer<int>::Allocate(3);
  ASSERT_TRUE(buffer.ok());
  PinnedBuffer<int> pinned = std::move(buffer.value());
  for (int i = 0; i < 3; ++i) pinned.data()[i] = 10 + i;
  DeviceArray<int> array({0, 0, 0});
  ASSERT_EQ(cudaMemcpy(array.data(), pinned.data(), 12, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(array.Fetch(), (std::vector<int>{10, 11, 12}));
  EXPECT_EQ(PinnedBuffer<int>::Allocate(0).value().data(), nullptr);
}

TEST(AllocatorsTest, TheDevicesPoolKeepsWhatIsFreed) {
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

TEST(AllocatorsTest, FreedPinnedMemoryGoesOnceTheStreamIsThere) {
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

TEST(AllocatorsTest, FreedPinnedMemoryStaysWhileTheStreamUsesIt) {
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

TEST(PartsTest, EveryPlaceIsInThePartThatHoldsIt) {
  const std::vector<std::vector<int64_t>> begins = {
      {0, 1},    {0, 5}, {0, 0, 3}, {0, 3, 3}, {0, 0, 0, 1, 1, 4, 4, 9, 9}, {0, 1, 2, 3, 4, 5, 6, 7},
      {7, 8, 20}};
  for (const std::vector<int64_t>& begin : begins) {
    const int parts = static_cast<int>(begin.size()) - 1;
    for (int64_t i = begin.front(); i < begin.back(); ++i) {
      const int part = PartOf(begin.data(), parts, i);
      EXPECT_LE(begin[part], i);
      EXPECT_LT(i, begin[part + 1]);
    }
  }
}

class TransfersTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess); }
  void TearDown() override {
    if (stream_ != nullptr) {
      ASSERT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    }
  }

  template <typename T>
  std::vector<T> Fetch(const T* device, int64_t n) {
    RoundTrip trip;
    StatusOr<const T*> values = trip.Fetch(stream_, device, n);
    EXPECT_TRUE(values.ok()) << values.status().message();
    return std::vector<T>(values.value(), values.value() + n);
  }

  cudaStream_t stream_ = nullptr;
  AsyncAllocator allocator_;
};

TEST_F(TransfersTest, ArraysOfOneUploadArriveApart) {
  StagedUpload upload;
  const std::vector<int64_t> longs = {1, -1, INT64_MIN};
  const std::vector<char> chars = {'a'};
  const std::vector<float> none;
  const std::vector<double> doubles = {0.5, -0.0};
  const int64_t* device_longs = nullptr;
  const char* device_chars = nullptr;
  const float* device_none = nullptr;
  const double* device_doubles = nullptr;
  upload.Add(Span<const int64_t>(longs), &device_longs);
  upload.Add(Span<const char>(chars), &device_chars);
  upload.Add(Span<const float>(none), &device_none);
  upload.Add(Span<const double>(doubles), &device_doubles);
  const StatusOr<DeviceBuffer<char>> memory = upload.Send(stream_, &allocator_);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(device_doubles) % 16, 0u);
  EXPECT_EQ(Fetch(device_longs, 3), longs);
  EXPECT_EQ(Fetch(device_chars, 1), chars);
  EXPECT_EQ(Fetch(device_doubles, 2), doubles);
}

TEST_F(TransfersTest, AnEmptyUploadIsNothing) {
  StagedUpload upload;
  EXPECT_EQ(upload.Send(stream_, &allocator_).value().size(), 0);
}

// Stages are reused only after their copies have run, whatever the order of streams.
TEST_F(TransfersTest, ManyUploadsInFlightKeepTheirValues) {
  cudaStream_t streams[2] = {stream_, nullptr};
  ASSERT_EQ(cudaStreamCreate(&streams[1]), cudaSuccess);
  {
    StagedUpload upload;
    std::vector<DeviceBuffer<char>> memory;
    std::vector<const int*> sent;
    for (int i = 0; i < 40; ++i) {
      const std::vector<int> values(1 + i * 97 % 3000, i);
      sent.push_back(nullptr);
      upload.Add(Span<const int>(values), &sent.back());
      memory.push_back(std::move(upload.Send(streams[i % 2], &allocator_).value()));
      if (i % 16 == 7) {
        ASSERT_EQ(cudaStreamSynchronize(streams[i / 16 % 2]), cudaSuccess);
        upload.HasWaited(streams[i / 16 % 2]);
      }
    }
    ASSERT_EQ(cudaStreamSynchronize(streams[1]), cudaSuccess);
    for (int i = 0; i < 40; ++i) {
      const int n = 1 + i * 97 % 3000;
      EXPECT_EQ(Fetch(sent[i], n), std::vector<int>(n, i)) << i;
    }
  }
  ASSERT_EQ(cudaStreamDestroy(streams[1]), cudaSuccess);
}

TEST_F(TransfersTest, AnArrayIsCopiedToWhereItIsWanted) {
  DeviceArray<int> array(std::vector<int>(10, 0));
  StagedUpload upload;
  const std::vector<int> values = {5, 6, 7};
  ASSERT_TRUE(upload.Copy(stream_, values.data(), 12, array.data() + 4).ok());
  ASSERT_TRUE(upload.Copy(stream_, nullptr, 0, nullptr).ok());
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(array.Fetch(), (std::vector<int>{0, 0, 0, 0, 5, 6, 7, 0, 0, 0}));
}

TEST_F(TransfersTest, RoundTripsBringWhatIsThereAndCount) {
  std::vector<int64_t> values(3000);
  std::iota(values.begin(), values.end(), -7);
  DeviceArray<int64_t> array(values);
  RoundTrip trip;
  const int64_t before = RoundTrip::count();
  for (const int64_t n : {0, 1, 3, 600, 3000, 2}) {
    const StatusOr<const int64_t*> fetched =
        trip.Fetch(stream_, static_cast<const int64_t*>(array.data()), n);
    ASSERT_TRUE(fetched.ok());
    EXPECT_EQ(std::vector<int64_t>(fetched.value(), fetched.value() + n),
              std::vector<int64_t>(values.begin(), values.begin() + n));
  }
  EXPECT_EQ(RoundTrip::count() - before, 6);
}

}  // namespace

}  // namespace sok
