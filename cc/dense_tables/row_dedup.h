#ifndef SOK_CC_DENSE_TABLES_ROW_DEDUP_H_
#define SOK_CC_DENSE_TABLES_ROW_DEDUP_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/dedup/dedup.h"

namespace sok {

// Finds the distinct rows of a batch, with the results and errors of Deduplicator. It knows the number of
// rows of the table: if that is small compared with the batch, an array indexed by row is faster than a hash
// table.
//
// Keeps its working memory from one Run to the next. Not thread-safe.
class RowDeduplicator {
 public:
  // Like Deduplicator::Run. Rows should be in [0, limit); others are allowed and slower.
  Status Run(Executor& executor, Span<const int64_t> rows, int64_t limit, std::vector<int64_t>* unique,
             Span<int32_t> inverse);

 private:
  Status RunByPlaces(Span<const int64_t> rows, int64_t limit, std::vector<int64_t>* unique,
                     Span<int32_t> inverse);

  // For each row of the table, 1 + its position among the distinct rows; all zero between calls.
  std::vector<int32_t> places_;
  std::vector<int64_t> distinct_;
  Deduplicator by_hash_;
};

}  // namespace sok

#endif  // SOK_CC_DENSE_TABLES_ROW_DEDUP_H_
