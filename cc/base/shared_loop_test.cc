#include "cc/base/shared_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace sok {
namespace {

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
