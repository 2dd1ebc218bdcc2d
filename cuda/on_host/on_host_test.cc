// What the engine guarantees beyond CUDA: late streams, repeatable schedules, limits.
#include "cuda/on_host/on_host.h"

#include <cuda_runtime.h>

#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/base/testing/device_array.h"
#include "cuda/on_host/testing/planted_kernels.h"
#include "cuda/on_host/testing/seeds_of_tests.h"
#include "gtest/gtest.h"

namespace sok::on_host {
namespace {

constexpr int kInts = kPlantedThreads;

// Reads a value although nothing orders the read, which ThreadSanitizer would report as a race.
__attribute__((noinline, no_sanitize("thread"))) int Peek(const int* value) {
  return *static_cast<const volatile int*>(value);
}

// Pinned zeros.
class Pinned {
 public:
  Pinned() {
    EXPECT_EQ(cudaMallocHost(&data_, kInts * sizeof(int)), cudaSuccess);
    std::fill_n(data_, kInts, 0);
  }
  ~Pinned() { cudaFreeHost(data_); }
  int* data() const { return data_; }

 private:
  int* data_ = nullptr;
};

class LateStreamsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Use(Streams::kLate);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaStreamDestroy(stream_);
    EXPECT_EQ(PendingWork(), 0);
  }
  static void Use(Streams streams) {
    Schedule schedule;
    schedule.streams = streams;
    SetSchedule(schedule);
  }

  cudaStream_t stream_ = nullptr;
  const Pinned pinned_;
};

TEST_F(LateStreamsTest, NothingRunsUntilSomethingWaits) {
  ASSERT_EQ(LaunchSlow(stream_, pinned_.data(), 1), cudaSuccess);
  EXPECT_EQ(Peek(pinned_.data() + 0), 0);
  EXPECT_EQ(PendingWork(), 1);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(Peek(pinned_.data() + 0), kPlantedThreads);
}

TEST_F(LateStreamsTest, EagerStreamsRunAtOnce) {
  Use(Streams::kEager);
  ASSERT_EQ(LaunchSlow(stream_, pinned_.data(), 1), cudaSuccess);
  EXPECT_EQ(Peek(pinned_.data() + 0), kPlantedThreads);
  EXPECT_EQ(PendingWork(), 0);
}

// In order, waiting for one stream does not run others, and a query runs one item.
TEST_F(LateStreamsTest, AWaitRunsNoMoreThanItNeeds) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(LaunchSlow(stream_, pinned_.data(), 1), cudaSuccess);
  ASSERT_EQ(LaunchSlow(stream_, pinned_.data(), 1), cudaSuccess);
  ASSERT_EQ(LaunchSlow(other, pinned_.data() + 1, 1), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(Peek(pinned_.data() + 0), kPlantedThreads);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(Peek(pinned_.data() + 0), 2 * kPlantedThreads);
  EXPECT_EQ(Peek(pinned_.data() + 1), 0);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);  // its work goes on
  EXPECT_EQ(cudaStreamSynchronize(other), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(Peek(pinned_.data() + 1), kPlantedThreads);
}

TEST_F(LateStreamsTest, WhichCopiesWait) {
  DeviceArray<int> device(std::vector<int>(kInts, 7));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  constexpr size_t kBytes = kInts * sizeof(int);
  // Copies from and to pinned memory are late.
  ASSERT_EQ(cudaMemcpyAsync(pinned_.data(), device.data(), kBytes, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_EQ(Peek(pinned_.data() + 0), 0);
  // Copies to pageable memory are done on return, with all work before them.
  std::vector<int> pageable(kInts, 0);
  ASSERT_EQ(cudaMemcpyAsync(pageable.data(), device.data(), kBytes, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_EQ(pageable[0], 7);
  EXPECT_EQ(Peek(pinned_.data() + 0), 7);
  // Copies from pageable memory have read it on return, and write late.
  pageable[0] = 8;
  ASSERT_EQ(cudaMemcpyAsync(device.data(), pageable.data(), kBytes, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  pageable[0] = 9;
  EXPECT_EQ(PendingWork(), 1);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(device.Fetch()[0], 8);
  // cudaFree waits for everything.
  int* other = nullptr;
  ASSERT_EQ(cudaMalloc(&other, 4), cudaSuccess);
  ASSERT_EQ(LaunchSlow(stream_, device.data(), 1), cudaSuccess);
  ASSERT_EQ(cudaFree(other), cudaSuccess);
  EXPECT_EQ(PendingWork(), 0);
}

TEST_F(LateStreamsTest, WorkIsCountedWhenItIsPutIntoAStream) {
  DeviceArray<int> device(std::vector<int>(kInts, 0));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const StreamWork before = EnqueuedWork();
  ASSERT_EQ(LaunchSlow(stream_, pinned_.data(), 1), cudaSuccess);
  ASSERT_EQ(LaunchSlow(stream_, pinned_.data(), 1), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device.data(), 0, sizeof(int), stream_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device.data(), 0, 0, stream_), cudaSuccess);
  for (const size_t bytes : {size_t{0}, sizeof(int), sizeof(int)}) {
    ASSERT_EQ(cudaMemcpyAsync(pinned_.data(), device.data(), bytes, cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
  }
  EXPECT_EQ(EnqueuedWork().kernels - before.kernels, 2);
  EXPECT_EQ(EnqueuedWork().transfers - before.transfers, 3);
  EXPECT_EQ(EnqueuedWork().bytes_to_host - before.bytes_to_host, 2 * sizeof(int));
  ASSERT_EQ(cudaMemcpyAsync(device.data(), pinned_.data(), 8, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(EnqueuedWork().bytes_to_device - before.bytes_to_device, 8);
  EXPECT_EQ(EnqueuedWork().run_ns, before.run_ns);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_GT(EnqueuedWork().run_ns, before.run_ns);
  EXPECT_EQ(EnqueuedWork().transfers - before.transfers, 4);
  EXPECT_EQ(EnqueuedWork().bytes_to_host - before.bytes_to_host, 2 * sizeof(int));
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(EnqueuedWork().events - before.events, 2);
  void* memory[2] = {};
  ASSERT_EQ(cudaMalloc(&memory[0], 8), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&memory[1], 8, stream_), cudaSuccess);
  for (void* const address : memory) ASSERT_EQ(cudaFree(address), cudaSuccess);
  EXPECT_EQ(EnqueuedWork().allocations - before.allocations, 2);
}

TEST_F(LateStreamsTest, ThreadsMayWaitAtOnce) {
  DeviceArray<int> device(std::vector<int>(1, 0));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      cudaStream_t stream = nullptr;
      EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(LaunchSlow(stream, device.data(), 1), cudaSuccess);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      }
      cudaStreamDestroy(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device.Fetch()[0], 20 * kPlantedThreads);
}

// The seed determines the order in which threads write, in random and adversarial order.
std::vector<int> LastWriters(uint64_t seed) {
  SetSchedule(ScheduleOfSeed(seed));
  DeviceArray<int> data(std::vector<int>(1, 0));
  std::vector<int> sums;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(LaunchLostUpdates(nullptr, data.data(), 0), cudaSuccess);
    sums.push_back(data.Fetch()[0]);
  }
  return sums;
}

TEST(ScheduleTest, ASeedIsARun) {
  for (uint64_t seed : {0, 1, 3}) EXPECT_EQ(LastWriters(seed), LastWriters(seed)) << seed;
  EXPECT_NE(LastWriters(1), LastWriters(2));
}

TEST(ScheduleTest, SeedsChooseOrders) {
  EXPECT_EQ(ScheduleOfSeed(0).order, Order::kInOrder);
  EXPECT_EQ(ScheduleOfSeed(1).order, Order::kRandom);
  EXPECT_EQ(ScheduleOfSeed(3).order, Order::kAdversarial);
  EXPECT_EQ(ToString(ScheduleOfSeed(7)), "seed 7 (random, late streams, 4 resident blocks)");
}

// A launch must not take the host's own thread_local variables for __shared__ ones.
int& HostVariable() {
  thread_local int value = 5;
  return value;
}

TEST(MemoryTest, VariablesOfTheHostAreLeftAlone) {
  HostVariable() = 6;
  DeviceArray<int> data(std::vector<int>(kInts, 0));
  ASSERT_EQ(LaunchSlow(nullptr, data.data(), 1), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(HostVariable(), 6);
}

// The seeds of a test whose runs do so much work each.
std::vector<uint64_t> SeedsOf(SeedsOfTests seeds, const std::string& test, int64_t work) {
  std::vector<uint64_t> all;
  do {
    all.push_back(seeds.Next(test));
    seeds.AddWork(test, work);
  } while (seeds.Left() == test);
  EXPECT_EQ(seeds.Left(), "");
  EXPECT_EQ(seeds.num_runs(), static_cast<int64_t>(all.size()));
  return all;
}

TEST(SeedsOfTestsTest, WithoutALimitEachTestHasAllSeeds) {
  const SeedsOfTests seeds(3, SeedsOfTests::kNoLimit, "plain");
  for (const int64_t work : {int64_t{0}, int64_t{1} << 61}) {
    EXPECT_EQ(SeedsOf(seeds, "Suite.Test", work), (std::vector<uint64_t>{1, 2, 3}));
  }
}

TEST(SeedsOfTestsTest, ALimitIsForTheRunsOfATestTogether) {
  const SeedsOfTests seeds(4, 100, "plain");
  for (const auto& [work, runs] :
       std::map<int64_t, size_t>{{0, 5}, {20, 5}, {21, 4}, {50, 2}, {51, 1}, {900, 1}}) {
    const std::vector<uint64_t> all = SeedsOf(seeds, "Suite.Test", work);
    EXPECT_EQ(all.size(), runs) << work;
    const std::set<uint64_t> distinct(all.begin(), all.end());
    EXPECT_EQ(distinct.size(), runs) << work;
    EXPECT_LE(*distinct.rbegin(), 4u);
    EXPECT_EQ(distinct.count(0), runs == 5 ? 1u : 0u) << "in order comes last";
  }
}

TEST(SeedsOfTestsTest, TestsAndBuildsBeginWithDifferentSeeds) {
  std::map<std::string, std::set<uint64_t>> firsts;
  for (const std::string build : {"plain", "asan"}) {
    SeedsOfTests seeds(20, 1, build);
    for (int i = 0; i < 50; ++i) {
      const std::string test = "Suite.Test" + std::to_string(i);
      const uint64_t first = seeds.Next(test);
      EXPECT_EQ(first, SeedsOfTests(20, 1, build).Next(test));
      firsts["builds"].insert(first);
      if (i == 0) firsts["one test"].insert(first);
    }
  }
  EXPECT_GT(firsts["builds"].size(), 10u);
  EXPECT_EQ(firsts["one test"].size(), 2u);
}

TEST(MemoryTest, LimitsAndCounts) {
  const size_t before = DeviceBytesInUse();
  void *first = nullptr, *second = nullptr;
  SetDeviceMemoryLimit(before + 1000);
  EXPECT_EQ(cudaMalloc(&first, 600), cudaSuccess);
  EXPECT_EQ(DeviceBytesInUse(), before + 600);
  EXPECT_EQ(cudaMalloc(&second, 600), cudaErrorMemoryAllocation);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(cudaMallocAsync(&second, 600, nullptr), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 600), cudaSuccess);
  EXPECT_NE(first, second);  // no address is used again
  EXPECT_EQ(cudaFree(second), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  SetDeviceMemoryLimit(size_t{80} << 30);
}

// Addresses are not used again, so the mappings of freed memory must not add up: their number is limited.
TEST(MemoryTest, FreedMemoryTakesNoMappings) {
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    int lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    return lines;
  };
  const auto use = [](size_t bytes) {
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    ASSERT_EQ(cudaMemset(memory, 1, bytes), cudaSuccess);
    ASSERT_EQ(cudaFree(memory), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(&memory, bytes), cudaSuccess);
    std::memset(memory, 1, bytes);
    ASSERT_EQ(cudaFreeHost(memory), cudaSuccess);
  };
  ASSERT_NO_FATAL_FAILURE(use(100));
  const int before = mappings();
  ASSERT_GT(before, 10);
  for (int i = 0; i < 300; ++i) ASSERT_NO_FATAL_FAILURE(use(100 + 50 * i));
  EXPECT_LT(mappings(), before + 100);
}

TEST(MemoryTest, CopiesBeyondAnAllocationAreRefused) {
  char* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 100), cudaSuccess);
  char bytes[200] = {};
  EXPECT_EQ(cudaMemcpy(device, bytes, 101, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device + 50, bytes, 51, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device - 1, bytes, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(bytes + 100, bytes, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(bytes, 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device + 50, bytes, 50, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaFree(device + 50), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  cudaGetLastError();
}

}  // namespace
}  // namespace sok::on_host
