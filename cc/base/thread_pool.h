#ifndef SOK_CC_BASE_THREAD_POOL_H_
#define SOK_CC_BASE_THREAD_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "cc/base/executor.h"

namespace sok {

// An executor with threads of its own, for tests and benchmarks. Calls of ParallelFor from several threads
// are served one after the other.
class ThreadPool final : public Executor {
 public:
  // `threads` threads, the caller of ParallelFor included, at least 1. Work is cut into blocks that cost
  // `min_block_ns` at least; 0 cuts the smallest work too, as tests need it to see a split at all.
  explicit ThreadPool(int threads, int64_t min_block_ns = 10000);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int concurrency() const override { return static_cast<int>(workers_.size()) + 1; }
  void ParallelFor(int64_t n, int64_t ns_per_item, FunctionRef<void(int64_t, int64_t)> body) override;

 private:
  // One ParallelFor: blocks are handed out in order to whoever asks.
  struct Work {
    FunctionRef<void(int64_t, int64_t)> body;
    int64_t n;
    int64_t block;
    int64_t next = 0;     // first item that nobody has taken
    int64_t running = 0;  // blocks taken and not yet done
  };

  void WorkerLoop();
  // Takes blocks of `work` until there are none. `lock` holds mutex_, except while a block runs.
  void RunBlocks(Work* work, std::unique_lock<std::mutex>* lock);

  const int64_t min_block_ns_;
  std::mutex serial_;  // held through a ParallelFor
  std::mutex mutex_;   // guards what follows
  std::condition_variable wake_;
  std::condition_variable done_;
  Work* work_ = nullptr;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace sok

#endif  // SOK_CC_BASE_THREAD_POOL_H_
