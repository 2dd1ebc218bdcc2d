#ifndef SOK_CC_CPU_OPTIMIZERS_ROW_LOOP_H_
#define SOK_CC_CPU_OPTIMIZERS_ROW_LOOP_H_

#include <algorithm>
#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/prefetch.h"
#include "cc/base/span.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/pooling/bag_ranges.h"
#include "cc/cpu/store/record_scratch.h"
#include "cc/cpu/store/row_store.h"
#include "cc/optimizers/rule.h"

namespace sok {

// The part of ForEachRow over rows [begin, end), on one thread. `unpacked` has room for the floats of a
// record, or is null if records are floats.
//
// While it works on one block of rows, the records of the next block are on their way: all of them are
// prefetched at once, so that the requests wait for memory in parallel. With one prefetch between the work on
// each two rows, only one or two requests fit into the few hundred instructions that a processor looks ahead.
// Exact Adam's catch-up then took 1.5 times as long.
template <typename Ahead, typename Body>
void LoopOverRows(Span<const int64_t> rows, int64_t begin, int64_t end, const RowGradients* gradients,
                  RowStore* store, float* unpacked, const Ahead& ahead, const Body& body) {
  const RecordLayout& layout = store->layout();
  const int64_t floats = store->stride();
  const int64_t dim = store->dim();
  const int64_t block = std::min(
      PrefetchDistance(floats), std::max<int64_t>(RowGradients::kBlockFloats / std::max<int64_t>(dim, 1), 1));
  alignas(64) float scratch[RowGradients::kBlockFloats];
  const auto prefetch_records = [&](int64_t first) {
    for (int64_t i = first; i < std::min(end, first + block); ++i) {
      PrefetchFloats<true>(reinterpret_cast<const float*>(store->record(rows[i])), floats);
    }
  };
  const auto look_ahead = [&](int64_t first) {
    for (int64_t i = first; i < std::min(end, first + block); ++i) ahead(rows[i]);
  };
  look_ahead(begin);
  look_ahead(begin + block);
  prefetch_records(begin);
  for (int64_t first = begin; first < end; first += block) {
    const int64_t last = std::min(end, first + block);
    look_ahead(last + block);
    prefetch_records(last);
    const float* g = gradients == nullptr ? nullptr : gradients->Block(first, last, scratch);
    for (int64_t i = first; i < last; ++i) {
      const float* const row_g = g == nullptr ? nullptr : g + (i - first) * dim;
      char* const record = store->record(rows[i]);
      if (unpacked != nullptr) layout.Read(record, unpacked);
      body(i, row_g, unpacked != nullptr ? unpacked : reinterpret_cast<float*>(record));
      if (unpacked != nullptr) layout.WriteStep(unpacked, store->step(), record);
    }
  }
}

// Calls body(i, g, record) for every rows[i], on the executor's threads. g is the row's gradient, or null
// without gradients; record is the floats of its weights followed by its slots, prefetched one block ahead.
// What body leaves there is the record after step store->step(). Rows are distinct, so threads work on
// disjoint memory. ahead(row) is called another block ahead, to prefetch other data of the row.
template <typename Ahead, typename Body>
void ForEachRow(Executor& executor, Span<const int64_t> rows, const RowGradients* gradients, RowStore* store,
                const Ahead& ahead, const Body& body) {
  // A record is read and written, at about 10 bytes per nanosecond.
  const int64_t ns_per_row = 10 + store->stride();
  const Span<const int64_t> offsets = gradients == nullptr ? Span<const int64_t>() : gradients->offsets();
  const RecordLayout& layout = store->layout();
  RecordScratch scratch(layout.is_plain() ? 0 : layout.floats());
  const auto with_floats = [&](int64_t begin, int64_t end, float* floats) {
    LoopOverRows(rows, begin, end, gradients, store, layout.is_plain() ? nullptr : floats, ahead, body);
  };
  const auto loop = [&](int64_t begin, int64_t end) { RecordScratch::OnRange(begin, end, with_floats); };
  if (!offsets.empty() && !scratch.is_shared()) return ParallelForBags(executor, offsets, ns_per_row, loop);
  scratch.ForRanges(executor, rows.size(), ns_per_row, [&](int64_t begin, int64_t end, float* floats) {
    RunVectorized([&] { with_floats(begin, end, floats); });
  });
}

// For ForEachRow without other data to prefetch.
struct NothingAhead {
  void operator()(int64_t /*row*/) const {}
};

// ApplyToRow, with loops that are compiled for the usual dims.
template <typename Rule, typename Step>
void ApplyToRecord(const Step& step, const float* g, float* record, int64_t dim) {
  WithColumns(dim, [&](auto columns) { ApplyToRow<Rule>(step, g, record, columns); });
}

}  // namespace sok

#endif  // SOK_CC_CPU_OPTIMIZERS_ROW_LOOP_H_
