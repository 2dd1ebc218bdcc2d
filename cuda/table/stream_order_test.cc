#include "cuda/table/stream_order.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cuda/device_array.h"
#include "cuda/device_stream.h"

namespace sok {
namespace {

class StreamOrderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
    Restart();
  }

  void Restart() {
    for (auto& stream : streams_) stream = std::make_unique<DeviceStream>();
    calls_ = 0;
    value_ = std::make_unique<DeviceArray<char>>(std::vector<char>{0});
    copies_ = std::make_unique<DeviceArray<char>>(std::vector<char>(kMost, 99));
    order_ = std::make_unique<StreamOrder>();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // the arrays are written on the null stream
  }

  // A call on a stream: copies the value, then increases it.
  void Call(int stream) {
    const cudaStream_t on = streams_[stream]->get();
    ASSERT_TRUE(order_->Enter(on).ok());
    ASSERT_EQ(cudaMemcpyAsync(copies_->data() + calls_, value_->data(), 1, cudaMemcpyDeviceToDevice, on),
              cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(value_->data(), ++calls_, 1, on), cudaSuccess);
    ASSERT_TRUE(order_->Leave(on).ok());
    EXPECT_EQ(order_->last_stream(), on);
  }

  static constexpr int kMost = 6;
  std::unique_ptr<DeviceStream> streams_[3];
  std::unique_ptr<DeviceArray<char>> value_, copies_;
  std::unique_ptr<StreamOrder> order_;
  int calls_ = 0;
};

// Whichever streams the calls have, each sees what the one before left.
TEST_F(StreamOrderTest, EachCallComesAfterTheOneBefore) {
  for (const std::vector<int>& streams : std::vector<std::vector<int>>{
           {0, 1}, {0, 0, 1}, {0, 0, 1, 1, 0}, {0, 1, 0, 0, 1}, {0, 1, 2, 0, 0, 2}, {0, 1, 1, 2}}) {
    Restart();
    for (const int stream : streams) ASSERT_NO_FATAL_FAILURE(Call(stream));
    streams_[streams.back()]->Wait();
    std::vector<char> copies = copies_->Fetch();
    for (int call = 0; call < calls_; ++call) EXPECT_EQ(copies[call], call);
  }
}

TEST_F(StreamOrderTest, WaitsForTheLastCall) {
  StreamOrder().Wait();
  for (const int stream : {0, 1, 1}) ASSERT_NO_FATAL_FAILURE(Call(stream));
  order_->Wait();
  for (const auto& stream : streams_) EXPECT_EQ(cudaStreamQuery(stream->get()), cudaSuccess);
}

}  // namespace
}  // namespace sok
