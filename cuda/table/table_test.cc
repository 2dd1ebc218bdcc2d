// The changes of a table equal those of cc/table/row_changes.h after every call.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cc/table/row_changes.h"
#include "cuda/base/allocators.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/table/device_row_changes.h"
#include "cuda/table/device_table.h"

namespace sok {
namespace {

constexpr int64_t kRows = 100;

class DeviceRowChangesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }

  void Start() {
    ASSERT_TRUE(on_host_.Start(kRows).ok());
    ASSERT_TRUE(on_device_.Start(nullptr, kRows).ok());
  }
  void MarkChanged(const std::vector<int64_t>& rows) {
    for (const int64_t row : rows) {
      if (row >= 0) on_host_.MarkChanged(row);
    }
    DeviceArray<int64_t> array(rows);
    ASSERT_TRUE(on_device_.MarkChanged(nullptr, array.data(), static_cast<int64_t>(rows.size())).ok());
  }
  void MarkErased(int64_t row, int64_t key) {
    ASSERT_TRUE(on_host_.Reserve(kRows, 1).ok());
    ASSERT_TRUE(on_device_.Reserve(nullptr, kRows, 1).ok());
    on_host_.MarkErased(row, key);
    DeviceArray<int64_t> rows({row});
    DeviceArray<int64_t> keys({key});
    ASSERT_TRUE(on_device_.MarkErased(nullptr, rows.data(), keys.data(), 1).ok());
  }
  void BeginSave() {
    on_host_.BeginSave();
    ASSERT_TRUE(on_device_.BeginSave(nullptr).ok());
  }
  void EndSave(bool ok) {
    on_host_.EndSave(ok);
    ASSERT_TRUE(on_device_.EndSave(nullptr, ok).ok());
  }

  void ExpectSame() {
    // A word more than there are rows for.
    constexpr int64_t kWords = (kRows + 31) / 32 + 1;
    DeviceArray<uint32_t> words(std::vector<uint32_t>(kWords, 0xdeadbeef));
    ASSERT_TRUE(on_device_.WriteChanged(nullptr, 0, kWords, words.data()).ok());
    std::vector<uint32_t> expected(kWords, 0);
    for (int64_t row = 0; row < kRows; ++row) {
      if (on_host_.changed(row)) expected[row / 32] |= 1u << (row % 32);
    }
    ASSERT_EQ(words.Fetch(), expected);
    std::vector<int64_t> erased = {77};
    ASSERT_TRUE(on_device_.FetchErased(nullptr, &erased).ok());
    ASSERT_EQ(erased, on_host_.erased());
  }

  AsyncAllocator allocator_;
  RowChanges on_host_;
  DeviceRowChanges on_device_{&allocator_};
};

TEST_F(DeviceRowChangesTest, AFailedSaveLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(MarkChanged({1, 40, -1}));
  ASSERT_NO_FATAL_FAILURE(MarkErased(7, 70));
  BeginSave();
  ASSERT_NO_FATAL_FAILURE(ExpectSame());
  ASSERT_NO_FATAL_FAILURE(MarkChanged({2}));
  ASSERT_NO_FATAL_FAILURE(MarkErased(1, 10));
  EndSave(false);
  ASSERT_NO_FATAL_FAILURE(ExpectSame());
  ASSERT_EQ(on_host_.erased(), (std::vector<int64_t>{10, 70}));
  BeginSave();
  ASSERT_NO_FATAL_FAILURE(MarkChanged({9}));
  EndSave(true);
  ASSERT_NO_FATAL_FAILURE(ExpectSame());
}

TEST_F(DeviceRowChangesTest, RandomStreamsEqualTheHosts) {
  std::mt19937_64 random(3);
  ASSERT_NO_FATAL_FAILURE(Start());
  bool saves = false;
  for (int round = 0; round < 150; ++round) {
    const auto row = static_cast<int64_t>(random() % kRows);
    const uint64_t what = random() % 100;
    if (what < 40) {
      ASSERT_NO_FATAL_FAILURE(MarkChanged({row, static_cast<int64_t>(random() % kRows)}));
    } else if (what < 75) {
      ASSERT_NO_FATAL_FAILURE(MarkErased(row, row % 37 - 18));
    } else if (!saves) {
      BeginSave();
      saves = true;
    } else {
      EndSave(random() % 2 == 0);
      saves = false;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSame());
  }
}

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
    order_->Leave(on);
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
