#include "cc/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace sok {
namespace {

TEST(ThreadPoolTest, CoversEveryItemOnce) {
  for (const int threads : {1, 2, 3, 4}) {
    ThreadPool pool(threads, 0);
    EXPECT_EQ(pool.concurrency(), threads);
    for (const int64_t n : {0, 1, 2, 7, 64, 1000}) {
      std::vector<int> calls(n, 0);
      pool.ParallelFor(n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++calls[i];
      });
      EXPECT_EQ(calls, std::vector<int>(n, 1)) << threads << " threads";
    }
  }
}

TEST(ThreadPoolTest, NegativeCountDoesNothing) {
  ThreadPool pool(2, 0);
  pool.ParallelFor(-3, 1, [](int64_t, int64_t) { FAIL(); });
  InlineExecutor().ParallelFor(-3, 1, [](int64_t, int64_t) { FAIL(); });
}

TEST(ThreadPoolTest, SmallWorkStaysOnTheCaller) {
  ThreadPool pool(4);
  std::vector<std::thread::id> ran;
  pool.ParallelFor(100, 10, [&](int64_t, int64_t) { ran.push_back(std::this_thread::get_id()); });
  EXPECT_EQ(ran, std::vector<std::thread::id>{std::this_thread::get_id()});
}

TEST(ThreadPoolTest, LargeWorkIsSplit) {
  ThreadPool pool(3);
  std::atomic<int> blocks{0};
  pool.ParallelFor(12, 1'000'000, [&](int64_t, int64_t) { ++blocks; });
  EXPECT_EQ(blocks, 12);
}

TEST(ThreadPoolTest, BodiesRunAtTheSameTime) {
  ThreadPool pool(2, 0);
  std::atomic<int> arrived{0};
  // Each of the two bodies waits until the other has begun, so they finish only if two threads run them.
  pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPoolTest, CallersTakeTurns) {
  ThreadPool pool(3, 0);
  std::atomic<int64_t> sum{0};
  const auto call = [&] {
    for (int round = 0; round < 50; ++round) {
      pool.ParallelFor(20, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    }
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(sum, 2 * 50 * 20);
}

}  // namespace
}  // namespace sok
