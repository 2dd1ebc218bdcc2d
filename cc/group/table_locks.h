#ifndef SOK_CC_GROUP_TABLE_LOCKS_H_
#define SOK_CC_GROUP_TABLE_LOCKS_H_

#include <algorithm>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/table/table.h"

namespace sok {

// Holds the mutexes of several tables, each once, locked in order of address, so that holders of overlapping
// sets cannot deadlock.
class TableLocks {
 public:
  // The analysis cannot follow a set of mutexes whose size is known only at run time.
  explicit TableLocks(Span<Table* const> tables) SOK_NO_THREAD_SAFETY_ANALYSIS
      : tables_(tables.begin(), tables.end()) {
    std::sort(tables_.begin(), tables_.end());
    tables_.erase(std::unique(tables_.begin(), tables_.end()), tables_.end());
    for (Table* table : tables_) table->mutex().lock();
  }
  ~TableLocks() SOK_NO_THREAD_SAFETY_ANALYSIS {
    for (Table* table : tables_) table->mutex().unlock();
  }
  TableLocks(const TableLocks&) = delete;
  TableLocks& operator=(const TableLocks&) = delete;

 private:
  std::vector<Table*> tables_;
};

}  // namespace sok

#endif  // SOK_CC_GROUP_TABLE_LOCKS_H_
