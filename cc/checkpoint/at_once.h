#ifndef SOK_CC_CHECKPOINT_AT_ONCE_H_
#define SOK_CC_CHECKPOINT_AT_ONCE_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/status.h"
#include "cc/base/within_memory.h"

namespace sok {

// Rows whose columns are written or read together: what a thread does between two meetings with the others,
// which take long where programs compete for cores.
constexpr int64_t kRowsAtOnce = 32768;

// Calls work(i), a Status, for each column i in [0, columns), at the same time where there are threads.
// Returns the error of the first column that has one.
template <typename Work>
Status ForEachColumn(Executor& executor, int64_t columns, const Work& work) {
  constexpr int64_t kNsOfColumn = 1'000'000;
  std::vector<Status> statuses(static_cast<size_t>(columns));
  executor.ParallelFor(columns, kNsOfColumn, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      statuses[static_cast<size_t>(i)] = WithinMemory([&] { return work(i); });
    }
  });
  for (Status& status : statuses) SOK_RETURN_IF_ERROR(status);
  return OkStatus();
}

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_AT_ONCE_H_
