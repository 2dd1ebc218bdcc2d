#ifndef SOK_CC_BASE_SHARED_LOOP_H_
#define SOK_CC_BASE_SHARED_LOOP_H_

#include <atomic>
#include <cstdint>

#include "cc/base/function_ref.h"
#include "cc/base/mutex.h"
#include "cc/base/status.h"

namespace sok {

// A loop over [0, n) that threads share: each takes the next block of items when it is free. The owner waits
// for blocks that other threads have begun, but not for threads that have not started yet: waking a thread
// takes longer than many loops, and a late thread finds nothing left to do.
//
// Thread-safe. Held by a shared_ptr, because a late helper may arrive after the owner has returned.
class SharedLoop {
 public:
  // The number of items in a block of a loop over n > 0 items that take `ns_per_item` each. There are several
  // blocks per thread, so that a thread that loses its core does not delay the others, or fewer if a block
  // would take less than `min_block_ns`. The result may exceed n.
  static int64_t BlockFor(int64_t n, int64_t ns_per_item, int64_t threads, int64_t min_block_ns);

  // Hands out `block` >= 1 items at a time. `body` is called on disjoint ranges that together cover [0, n),
  // and never after the owner's Finish has returned.
  SharedLoop(int64_t n, int64_t block, FunctionRef<void(int64_t begin, int64_t end)> body);
  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;

  // Whether blocks are left that no thread has taken.
  bool HasBlocks() const { return next_.load(std::memory_order_relaxed) < n_; }

  // Runs blocks until all are taken.
  void Help();

  // Like Help, but returns only when all blocks have run.
  void Finish();

 private:
  const int64_t n_;
  const int64_t block_;
  const FunctionRef<void(int64_t, int64_t)> body_;
  std::atomic<int64_t> next_{0};     // first item that no thread has taken
  std::atomic<int64_t> unfinished_;  // items whose block has not finished
  Mutex mutex_;
  CondVar finished_;
};

// The error with the lowest number among those of concurrent pieces of work. Thread-safe.
class LowestError {
 public:
  void Add(int64_t number, const Status& status) {
    if (status.ok()) return;
    const MutexLock lock(mutex_);
    if (!error_.ok() && number_ <= number) return;
    number_ = number;
    error_ = status;
  }
  // OK if there was none. Call it when all work is done: it takes no lock.
  const Status& status() const SOK_NO_THREAD_SAFETY_ANALYSIS { return error_; }

 private:
  Mutex mutex_;
  int64_t number_ SOK_GUARDED_BY(mutex_) = 0;
  Status error_ SOK_GUARDED_BY(mutex_);
};

}  // namespace sok

#endif  // SOK_CC_BASE_SHARED_LOOP_H_
