#ifndef SOK_CC_GROUP_TABLE_LOCKS_H_
#define SOK_CC_GROUP_TABLE_LOCKS_H_

#include <algorithm>
#include <mutex>
#include <vector>

#include "cc/base/span.h"
#include "cc/table/table.h"

namespace sok {

// Holds the mutexes of several tables, each once, locked in order of address, so that holders of overlapping
// sets cannot deadlock.
class TableLocks {
 public:
  explicit TableLocks(Span<Table* const> tables) {
    std::vector<Table*> distinct(tables.begin(), tables.end());
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    locks_.reserve(distinct.size());
    for (Table* table : distinct) locks_.emplace_back(table->mutex());
  }

 private:
  std::vector<std::unique_lock<std::mutex>> locks_;
};

}  // namespace sok

#endif  // SOK_CC_GROUP_TABLE_LOCKS_H_
