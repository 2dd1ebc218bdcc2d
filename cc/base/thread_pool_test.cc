#include "cc/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "cc/base/shared_loop.h"

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

TEST(SharedLoopTest, TheOwnerAloneRunsAllBlocksInOrder) {
  std::vector<int64_t> bounds;
  const auto body = [&](int64_t begin, int64_t end) { bounds.insert(bounds.end(), {begin, end}); };
  SharedLoop loop(7, 3, body);
  EXPECT_TRUE(loop.HasBlocks());
  loop.Finish();
  EXPECT_FALSE(loop.HasBlocks());
  EXPECT_EQ(bounds, (std::vector<int64_t>{0, 3, 3, 6, 6, 7}));
}

TEST(SharedLoopTest, NothingToDo) {
  const auto body = [](int64_t, int64_t) { FAIL(); };
  for (const int64_t n : {0, -5}) {
    SharedLoop loop(n, 4, body);
    EXPECT_FALSE(loop.HasBlocks());
    loop.Help();
    loop.Finish();
  }
}

TEST(SharedLoopTest, HelpersAndOwnerCoverEveryItemOnce) {
  for (int round = 0; round < 200; ++round) {
    std::vector<int> calls(100, 0);
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++calls[i];
    };
    const auto loop = std::make_shared<SharedLoop>(100, 1 + round % 7, body);
    std::vector<std::thread> helpers;
    for (int h = 0; h < 3; ++h) helpers.emplace_back([loop] { loop->Help(); });
    loop->Finish();
    // Helper threads may still run, but everything that they wrote is visible after Finish.
    EXPECT_EQ(calls, std::vector<int>(100, 1));
    for (std::thread& helper : helpers) helper.join();
  }
}

TEST(SharedLoopTest, TheOwnerDoesNotWaitForHelpersThatHaveNotStarted) {
  int calls = 0;
  std::shared_ptr<SharedLoop> late;
  {
    const auto body = [&](int64_t begin, int64_t end) { calls += static_cast<int>(end - begin); };
    const auto loop = std::make_shared<SharedLoop>(10, 1, body);
    late = loop;
    loop->Finish();  // returns although the helper arrives later
  }
  EXPECT_EQ(calls, 10);
  late->Help();  // must not call the body, which has been destroyed
  EXPECT_EQ(calls, 10);
}

TEST(SharedLoopTest, TheOwnerWaitsForBlocksThatOthersHaveBegun) {
  std::atomic<bool> begun{false};
  std::atomic<bool> may_end{false};
  int written = 0;
  const auto body = [&](int64_t begin, int64_t /*end*/) {
    if (begin > 0) return;
    begun = true;
    while (!may_end) std::this_thread::yield();
    written = 1;
  };
  const auto loop = std::make_shared<SharedLoop>(2, 1, body);
  std::thread helper([loop] { loop->Help(); });
  while (!begun) std::this_thread::yield();
  std::thread opener([&] {
    while (loop->HasBlocks()) std::this_thread::yield();
    may_end = true;
  });
  loop->Finish();
  EXPECT_EQ(written, 1);
  helper.join();
  opener.join();
}

TEST(SharedLoopTest, BlocksAreWorthwhileAndSeveralForEachThread) {
  EXPECT_EQ(SharedLoop::BlockFor(800, 1, 2, 0), 100);
  EXPECT_EQ(SharedLoop::BlockFor(801, 1, 2, 0), 101);
  EXPECT_EQ(SharedLoop::BlockFor(800, 10, 2, 10000), 1001);
  EXPECT_EQ(SharedLoop::BlockFor(3, 1000000, 2, 10000), 1);
  EXPECT_EQ(SharedLoop::BlockFor(5, 0, 0, 0), 2);  // 0 ns and 0 threads count as 1
}

}  // namespace

}  // namespace sok
