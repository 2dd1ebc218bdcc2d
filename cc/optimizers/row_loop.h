#ifndef SOK_CC_OPTIMIZERS_ROW_LOOP_H_
#define SOK_CC_OPTIMIZERS_ROW_LOOP_H_

#include <algorithm>
#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/prefetch.h"
#include "cc/base/span.h"
#include "cc/base/vectorize.h"
#include "cc/store/row_store.h"

namespace sok {

// The loop that all optimizers run in: calls body(i, record) for every rows[i], where record is its weights
// followed by its slots, asking for each record's cache lines some rows ahead. Rows are distinct, so threads
// work on disjoint memory. ahead(row) is called for each row twice as far ahead, for what else is kept by
// row.
template <typename Ahead, typename Body>
void ForEachRow(Executor& executor, Span<const int64_t> rows, RowStore* store, const Ahead& ahead,
                const Body& body) {
  const int64_t floats = store->stride();
  const int64_t distance = PrefetchDistance(floats);
  // Read and written from memory at some 10 bytes per nanosecond.
  const int64_t ns_per_row = 10 + floats;
  executor.ParallelFor(rows.size(), ns_per_row, [&](int64_t begin, int64_t end) {
    RunVectorized([&] {
      for (int64_t i = begin; i < std::min(end, begin + 2 * distance); ++i) ahead(rows[i]);
      for (int64_t i = begin; i < std::min(end, begin + distance); ++i) {
        PrefetchFloats<true>(store->weights(rows[i]), floats);
      }
      for (int64_t i = begin; i < end; ++i) {
        if (i + 2 * distance < end) ahead(rows[i + 2 * distance]);
        if (i + distance < end) PrefetchFloats<true>(store->weights(rows[i + distance]), floats);
        body(i, store->weights(rows[i]));
      }
    });
  });
}

// Nothing else is kept by row.
struct NothingAhead {
  void operator()(int64_t /*row*/) const {}
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ROW_LOOP_H_
