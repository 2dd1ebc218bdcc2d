#include "cc/base/thread_pool.h"

namespace sok {

ThreadPool::ThreadPool(int threads, int64_t min_block_ns) : min_block_ns_(min_block_ns) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t n, int64_t ns_per_item, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  const int64_t block = SharedLoop::BlockFor(n, ns_per_item, concurrency(), min_block_ns_);
  if (concurrency() == 1 || block >= n) {
    body(0, n);
    return;
  }
  const std::lock_guard<std::mutex> serial(serial_);
  const auto loop = std::make_shared<SharedLoop>(n, block, body);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loop_ = loop;
  }
  wake_.notify_all();
  loop->Finish();
}

void ThreadPool::WorkerLoop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || (loop_ != nullptr && loop_->HasBlocks()); });
    if (stopping_) return;
    const std::shared_ptr<SharedLoop> loop = loop_;
    lock.unlock();
    loop->Help();
    lock.lock();
  }
}

}  // namespace sok
