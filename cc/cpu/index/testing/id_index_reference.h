// IdIndex's contract on a standard map: the reference for tests and benchmarks.
#ifndef SOK_CC_CPU_INDEX_TESTING_ID_INDEX_REFERENCE_H_
#define SOK_CC_CPU_INDEX_TESTING_ID_INDEX_REFERENCE_H_

#include <cstdint>
#include <unordered_map>

#include "cc/base/span.h"

namespace sok {

class ReferenceIdIndex {
 public:
  static constexpr int64_t kAbsent = -1;

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }

  void Find(Span<const int64_t> ids, Span<int64_t> rows) const {
    for (int64_t i = 0; i < ids.size(); ++i) {
      const auto found = rows_.find(ids[i]);
      rows[i] = found == rows_.end() ? kAbsent : found->second;
    }
  }

  void Insert(Span<const int64_t> ids, Span<const int64_t> rows) {
    for (int64_t i = 0; i < ids.size(); ++i) rows_[ids[i]] = rows[i];
  }

  bool Erase(int64_t id) { return rows_.erase(id) == 1; }

 private:
  std::unordered_map<int64_t, int64_t> rows_;
};

}  // namespace sok

#endif  // SOK_CC_CPU_INDEX_TESTING_ID_INDEX_REFERENCE_H_
