#include "cc/base/thread_pool.h"

namespace sok {

ThreadPool::ThreadPool(int threads, int64_t min_block_ns) : min_block_ns_(min_block_ns) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
}

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t n, int64_t ns_per_item, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  const int64_t block = SharedLoop::BlockFor(n, ns_per_item, concurrency(), min_block_ns_);
  if (concurrency() == 1 || block >= n) {
    body(0, n);
    return;
  }
  const MutexLock serial(serial_);
  const auto loop = std::make_shared<SharedLoop>(n, block, body);
  {
    const MutexLock lock(mutex_);
    loop_ = loop;
  }
  wake_.NotifyAll();
  loop->Finish();
}

void ThreadPool::WorkerLoop() {
  while (const std::shared_ptr<SharedLoop> loop = NextLoop()) loop->Help();
}

std::shared_ptr<SharedLoop> ThreadPool::NextLoop() {
  const MutexLock lock(mutex_);
  while (!stopping_ && (loop_ == nullptr || !loop_->HasBlocks())) wake_.Wait(mutex_);
  return stopping_ ? nullptr : loop_;
}

}  // namespace sok
