#ifndef SOK_CC_CHECKPOINT_COLUMN_PIECES_H_
#define SOK_CC_CHECKPOINT_COLUMN_PIECES_H_

#include <cstdint>
#include <cstring>
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

// Copies by vectors where that is possible: for the few bytes of a row, a call of memcpy takes longer.
inline void CopyItem(void* to, const void* from, int64_t bytes) {
  constexpr int64_t kVector = 16;
  if (bytes % kVector != 0 || bytes > 16 * kVector) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t at = 0; at < bytes; at += kVector) {
    std::memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, kVector);
  }
}

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_COLUMN_PIECES_H_
