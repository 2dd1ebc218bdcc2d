#ifndef SOK_CC_CPU_GROUP_PARALLEL_PARTS_H_
#define SOK_CC_CPU_GROUP_PARALLEL_PARTS_H_

#include <atomic>
#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/function_ref.h"
#include "cc/base/lowest_error.h"
#include "cc/base/status.h"

namespace sok {

// Calls work(executor, i) for every i in [0, n). With enough parts to keep all threads busy, the parts run in
// parallel, each on one thread; otherwise one after the other, each with all threads. Returns the error of
// the lowest i that had one; ResourceExhausted if memory runs out.
inline Status ForEachPart(Executor& executor, int64_t n, FunctionRef<Status(Executor&, int64_t)> work) {
  if (n < executor.concurrency()) {
    for (int64_t i = 0; i < n; ++i) SOK_RETURN_IF_ERROR(WithinMemory([&] { return work(executor, i); }));
    return OkStatus();
  }
  // A part is a table or a lookup of a batch: worth a thread of its own.
  constexpr int64_t kPartNs = 50 * 1000;
  LowestError error;
  // A free thread takes the next part: parts differ in size, and with fixed ranges a delayed thread would
  // keep the others waiting.
  const int64_t threads = executor.concurrency();
  std::atomic<int64_t> next{0};
  executor.ParallelFor(threads, n * kPartNs / threads, [&](int64_t /*begin*/, int64_t /*end*/) {
    InlineExecutor inner;
    for (int64_t i = next++; i < n; i = next++) {
      error.Add(i, WithinMemory([&] { return work(inner, i); }));
    }
  });
  return error.status();
}

}  // namespace sok

#endif  // SOK_CC_CPU_GROUP_PARALLEL_PARTS_H_
