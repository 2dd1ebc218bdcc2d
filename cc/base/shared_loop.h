#ifndef SOK_CC_BASE_SHARED_LOOP_H_
#define SOK_CC_BASE_SHARED_LOOP_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "cc/base/function_ref.h"

namespace sok {

// A loop over [0, n) that threads share: blocks of items are handed out in order to whoever asks. Whose loop
// it is waits for the blocks that others have begun, and not for helpers that have not come yet: waking a
// thread takes longer than many a loop, and one that comes too late finds nothing left to do.
//
// Thread-safe. Held by a shared_ptr, as such a helper may come when the loop's owner is long gone.
class SharedLoop {
 public:
  // How many items a block of a loop over n > 0 items has, of which each takes `ns_per_item`: as many as take
  // `min_block_ns`, and few enough for several blocks a thread, so that a thread that lost its core for a
  // while does not hold up the others.
  static int64_t BlockFor(int64_t n, int64_t ns_per_item, int64_t threads, int64_t min_block_ns);

  // `block` items at a time, at least 1. `body` is called on disjoint ranges that together cover [0, n), and
  // not again once the owner's Finish has returned.
  SharedLoop(int64_t n, int64_t block, FunctionRef<void(int64_t begin, int64_t end)> body);
  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;

  // Whether there are blocks that nobody has taken.
  bool HasBlocks() const { return next_.load(std::memory_order_relaxed) < n_; }

  // Runs blocks until all are taken.
  void Help();

  // As Help, and returns when all blocks have been run.
  void Finish();

 private:
  const int64_t n_;
  const int64_t block_;
  const FunctionRef<void(int64_t, int64_t)> body_;
  std::atomic<int64_t> next_{0};     // first item that nobody has taken
  std::atomic<int64_t> unfinished_;  // items whose block has not been run
  std::mutex mutex_;
  std::condition_variable finished_;
};

}  // namespace sok

#endif  // SOK_CC_BASE_SHARED_LOOP_H_
