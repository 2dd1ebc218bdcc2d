#include "cc/base/shared_loop.h"

#include <algorithm>

namespace sok {

int64_t SharedLoop::BlockFor(int64_t n, int64_t ns_per_item, int64_t threads, int64_t min_block_ns) {
  constexpr int64_t kBlocksPerThread = 4;
  const int64_t blocks = kBlocksPerThread * std::max<int64_t>(threads, 1);
  const int64_t worthwhile = min_block_ns / std::max<int64_t>(ns_per_item, 1) + 1;
  return std::max((n + blocks - 1) / blocks, worthwhile);
}

SharedLoop::SharedLoop(int64_t n, int64_t block, FunctionRef<void(int64_t, int64_t)> body)
    : n_(std::max<int64_t>(n, 0)), block_(std::max<int64_t>(block, 1)), body_(body), unfinished_(n_) {}

void SharedLoop::Help() {
  // Checking before the increment keeps late threads from incrementing next_ without bound.
  while (HasBlocks()) {
    const int64_t begin = next_.fetch_add(block_, std::memory_order_relaxed);
    if (begin >= n_) return;
    const int64_t end = std::min(n_, begin + block_);
    body_(begin, end);
    // Release what the body wrote; acquire what other bodies wrote, because the last one wakes the owner.
    if (unfinished_.fetch_sub(end - begin, std::memory_order_acq_rel) > end - begin) continue;
    const MutexLock lock(mutex_);
    finished_.NotifyAll();
  }
}

void SharedLoop::Finish() {
  Help();
  const auto is_finished = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (is_finished()) return;
  const MutexLock lock(mutex_);
  while (!is_finished()) finished_.Wait(mutex_);
}

}  // namespace sok
