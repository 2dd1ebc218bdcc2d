// Uploads from staged memory, and round trips.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "cuda/base/async_allocator.h"
#include "cuda/base/round_trip.h"
#include "cuda/base/staged_upload.h"
#include "cuda/device_array.h"

namespace sok {
namespace {

class TransfersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
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
