#include "sok_ops/kernels/tf_engine_context.h"

#include <algorithm>
#include <memory>

namespace sok {

namespace tf = ::tensorflow;

namespace {

// Less work than this is done before another thread has woken up.
constexpr int64_t kSharedNs = 100 * 1000;
constexpr int64_t kMinBlockNs = 10 * 1000;

// Makes `helpers` threads of the pool help with `loop`. Waking a thread takes a system call, so each woken
// thread wakes some of the others.
void CallHelpers(tf::thread::ThreadPool* pool, const std::shared_ptr<SharedLoop>& loop, int64_t helpers) {
  while (helpers > 0 && loop->HasBlocks()) {
    const int64_t delegated = (helpers - 1) / 2;
    pool->Schedule([pool, loop, delegated] {
      CallHelpers(pool, loop, delegated);
      loop->Help();
    });
    helpers -= delegated + 1;
  }
}

}  // namespace

void TfExecutor::ParallelFor(int64_t n, int64_t ns_per_item, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  const int64_t threads = workers_.num_threads;
  const int64_t block = SharedLoop::BlockFor(n, ns_per_item, threads, kMinBlockNs);
  if (threads <= 1 || block >= n || n <= kSharedNs / std::max<int64_t>(ns_per_item, 1)) return body(0, n);
  const auto loop = std::make_shared<SharedLoop>(n, block, body);
  CallHelpers(workers_.workers, loop, std::min(threads, (n + block - 1) / block) - 1);
  loop->Finish();
}

}  // namespace sok
