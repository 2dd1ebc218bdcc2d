#ifndef SOK_CC_OPTIMIZERS_ROW_LOOP_H_
#define SOK_CC_OPTIMIZERS_ROW_LOOP_H_

#include <algorithm>
#include <cstdint>

#include "cc/base/columns.h"
#include "cc/base/executor.h"
#include "cc/base/prefetch.h"
#include "cc/base/span.h"
#include "cc/base/vectorize.h"
#include "cc/optimizers/row_gradients.h"
#include "cc/optimizers/rule.h"
#include "cc/pooling/bag_ranges.h"
#include "cc/store/row_store.h"

namespace sok {

// The loop that all optimizers run in, over rows [begin, end) on one thread: see ForEachRow.
//
// Records are asked for block by block, each block while the one before is worked on. A processor looks some
// hundreds of instructions ahead: requests that follow one another wait for memory side by side, and of those
// that are spread over the work on rows only one row's or two. That took exact Adam's catch-up half as long
// again.
template <typename Ahead, typename Body>
void LoopOverRows(Span<const int64_t> rows, int64_t begin, int64_t end, const RowGradients* gradients,
                  RowStore* store, const Ahead& ahead, const Body& body) {
  const int64_t floats = store->stride();
  const int64_t dim = store->dim();
  const int64_t block = std::min(
      PrefetchDistance(floats), std::max<int64_t>(RowGradients::kBlockFloats / std::max<int64_t>(dim, 1), 1));
  alignas(64) float scratch[RowGradients::kBlockFloats];
  const auto ask_for_records = [&](int64_t first) {
    for (int64_t i = first; i < std::min(end, first + block); ++i) {
      PrefetchFloats<true>(store->weights(rows[i]), floats);
    }
  };
  const auto look_ahead = [&](int64_t first) {
    for (int64_t i = first; i < std::min(end, first + block); ++i) ahead(rows[i]);
  };
  look_ahead(begin);
  look_ahead(begin + block);
  ask_for_records(begin);
  for (int64_t first = begin; first < end; first += block) {
    const int64_t last = std::min(end, first + block);
    look_ahead(last + block);
    ask_for_records(last);
    const float* g = gradients == nullptr ? nullptr : gradients->Block(first, last, scratch);
    for (int64_t i = first; i < last; ++i) {
      body(i, g == nullptr ? nullptr : g + (i - first) * dim, store->weights(rows[i]));
    }
  }
}

// Calls body(i, g, record) for every rows[i], where g is its gradient and record its weights followed by its
// slots, asking for each record's cache lines a block ahead. Rows are distinct, so threads work on disjoint
// memory. ahead(row) is called for each row another block ahead, for what else is kept by row. Without
// gradients, g is null.
template <typename Ahead, typename Body>
void ForEachRow(Executor& executor, Span<const int64_t> rows, const RowGradients* gradients, RowStore* store,
                const Ahead& ahead, const Body& body) {
  // Read and written from memory at some 10 bytes per nanosecond.
  const int64_t ns_per_row = 10 + store->stride();
  const Span<const int64_t> offsets = gradients == nullptr ? Span<const int64_t>() : gradients->offsets();
  const auto loop = [&](int64_t begin, int64_t end) {
    LoopOverRows(rows, begin, end, gradients, store, ahead, body);
  };
  if (!offsets.empty()) return ParallelForBags(executor, offsets, ns_per_row, loop);
  executor.ParallelFor(rows.size(), ns_per_row,
                       [&](int64_t begin, int64_t end) { RunVectorized([&] { loop(begin, end); }); });
}

// Nothing else is kept by row.
struct NothingAhead {
  void operator()(int64_t /*row*/) const {}
};

// One step of the rule on a record, as ApplyToRow, in loops that are compiled for the usual dims.
template <typename Rule, typename Step>
void ApplyToRecord(const Step& step, const float* g, float* record, int64_t dim) {
  WithColumns(dim, [&](auto columns) { ApplyToRow<Rule>(step, g, record, columns); });
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ROW_LOOP_H_
