#ifndef SOK_CC_CHECKPOINT_COLUMN_PIECES_H_
#define SOK_CC_CHECKPOINT_COLUMN_PIECES_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/status.h"

namespace sok {

// The most items of an array that are read together; a table may have a lower limit.
constexpr int64_t kPieceItems = 32768;

// Calls work(i), which returns a Status, for each column i in [0, columns) of a piece of `items` items, on
// the executor's threads. Returns the error of the first column that has one.
template <typename Work>
Status ForEachColumn(Executor& executor, int64_t columns, int64_t items, const Work& work) {
  constexpr int64_t kNsOfItem = 10;
  std::vector<Status> statuses(static_cast<size_t>(columns));
  executor.ParallelFor(columns, items * kNsOfItem, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      statuses[static_cast<size_t>(i)] = WithinMemory([&] { return work(i); });
    }
  });
  for (Status& status : statuses) SOK_RETURN_IF_ERROR(status);
  return OkStatus();
}

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_COLUMN_PIECES_H_
