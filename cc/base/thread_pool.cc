#include "cc/base/thread_pool.h"

#include <algorithm>

namespace sok {
namespace {

// Several blocks per thread, so that a thread that lost its core for a while does not hold up the others.
constexpr int64_t kBlocksPerThread = 4;

}  // namespace

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
  const int64_t blocks = kBlocksPerThread * concurrency();
  const int64_t worthwhile = min_block_ns_ / std::max<int64_t>(ns_per_item, 1) + 1;
  const int64_t block = std::max((n + blocks - 1) / blocks, worthwhile);
  if (concurrency() == 1 || block >= n) {
    body(0, n);
    return;
  }
  const std::lock_guard<std::mutex> serial(serial_);
  Work work{body, n, block};
  std::unique_lock<std::mutex> lock(mutex_);
  work_ = &work;
  wake_.notify_all();
  RunBlocks(&work, &lock);
  done_.wait(lock, [&] { return work.running == 0; });
  work_ = nullptr;
}

void ThreadPool::WorkerLoop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || (work_ != nullptr && work_->next < work_->n); });
    if (stopping_) return;
    RunBlocks(work_, &lock);
  }
}

void ThreadPool::RunBlocks(Work* work, std::unique_lock<std::mutex>* lock) {
  while (work->next < work->n) {
    const int64_t begin = work->next;
    const int64_t end = std::min(work->n, begin + work->block);
    work->next = end;
    ++work->running;
    lock->unlock();
    work->body(begin, end);
    lock->lock();
    // The last block's end lets the caller return, and `work` is gone: nothing may touch it after that.
    if (--work->running == 0 && work->next >= work->n) {
      done_.notify_all();
      return;
    }
  }
}

}  // namespace sok
