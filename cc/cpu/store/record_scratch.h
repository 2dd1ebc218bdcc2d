#ifndef SOK_CC_CPU_STORE_RECORD_SCRATCH_H_
#define SOK_CC_CPU_STORE_RECORD_SCRATCH_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"

namespace sok {

// Room for the floats of one record, for each thread that works on records in other types. Threads have room
// of their own on their stacks. Longer records share memory that the constructor takes, where the lack of it
// is an error (std::bad_alloc), and are worked on one after the other.
class RecordScratch {
 public:
  explicit RecordScratch(int64_t floats) : shared_(floats > kMostOnStack ? floats : 0) {}

  // Calls body(begin, end, floats) on ranges that together are [0, n), as Executor::ParallelFor does.
  template <typename Body>
  void ForRanges(Executor& executor, int64_t n, int64_t ns_each, const Body& body) {
    if (!shared_.empty()) return body(0, n, shared_.data());
    executor.ParallelFor(n, ns_each, [&](int64_t begin, int64_t end) { OnRange(begin, end, body); });
  }

  // The same for a range of a loop that the caller has spread, if !is_shared().
  template <typename Body>
  static void OnRange(int64_t begin, int64_t end, const Body& body) {
    alignas(64) float floats[kMostOnStack];
    body(begin, end, floats);
  }
  bool is_shared() const { return !shared_.empty(); }

  static constexpr int64_t kMostOnStack = 1 << 14;

 private:
  std::vector<float> shared_;
};

}  // namespace sok

#endif  // SOK_CC_CPU_STORE_RECORD_SCRATCH_H_
