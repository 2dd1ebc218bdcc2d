#ifndef SOK_CC_BASE_THREAD_POOL_H_
#define SOK_CC_BASE_THREAD_POOL_H_

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/mutex.h"
#include "cc/base/shared_loop.h"

namespace sok {

// An executor with its own threads, for tests and benchmarks. Concurrent calls of ParallelFor run one after
// another.
class ThreadPool final : public Executor {
 public:
  // `threads` >= 1 threads, including the caller of ParallelFor. Work is split into blocks that cost at least
  // `min_block_ns`; 0 splits even the smallest work, for tests.
  explicit ThreadPool(int threads, int64_t min_block_ns = 10000);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int concurrency() const override { return static_cast<int>(workers_.size()) + 1; }
  void ParallelFor(int64_t n, int64_t ns_per_item, FunctionRef<void(int64_t, int64_t)> body) override;

 private:
  void WorkerLoop();
  // Waits for a loop with blocks left; null when the pool ends.
  std::shared_ptr<SharedLoop> NextLoop();

  const int64_t min_block_ns_;
  Mutex serial_;  // held during a ParallelFor
  Mutex mutex_;
  CondVar wake_;
  std::shared_ptr<SharedLoop> loop_ SOK_GUARDED_BY(mutex_);  // the latest
  bool stopping_ SOK_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_;
};

}  // namespace sok

#endif  // SOK_CC_BASE_THREAD_POOL_H_
