#ifndef SOK_CC_BASE_EXECUTOR_H_
#define SOK_CC_BASE_EXECUTOR_H_

#include <cstdint>

#include "cc/base/function_ref.h"

namespace sok {

// Where the engine gets its threads from: TensorFlow's pool inside an op, ThreadPool in tests and
// benchmarks, the calling thread alone with InlineExecutor.
//
// The engine's results do not depend on how an executor splits the work: bodies write disjoint outputs.
class Executor {
 public:
  virtual ~Executor() = default;

  // The number of threads that can run bodies at once, the caller included; at least 1.
  virtual int concurrency() const = 0;

  // Calls body(begin, end) on disjoint ranges that together cover [0, n), possibly at the same time and in
  // any order, and returns when all have returned. `ns_per_item` is the expected cost of one item; work too
  // small to be worth a second thread runs on the caller. Does nothing for n <= 0. Bodies must not throw
  // and must not call ParallelFor.
  virtual void ParallelFor(int64_t n, int64_t ns_per_item,
                           FunctionRef<void(int64_t begin, int64_t end)> body) = 0;
};

// Runs everything on the calling thread.
class InlineExecutor final : public Executor {
 public:
  int concurrency() const override { return 1; }
  void ParallelFor(int64_t n, int64_t /*ns_per_item*/, FunctionRef<void(int64_t, int64_t)> body) override {
    if (n > 0) body(0, n);
  }
};

}  // namespace sok

#endif  // SOK_CC_BASE_EXECUTOR_H_
