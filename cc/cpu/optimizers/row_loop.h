#ifndef SOK_CC_CPU_OPTIMIZERS_ROW_LOOP_H_
#define SOK_CC_CPU_OPTIMIZERS_ROW_LOOP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/function_ref.h"
#include "cc/base/prefetch.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/cpu/pooling/bag_ranges.h"
#include "cc/cpu/store/record_scratch.h"
#include "cc/cpu/store/row_store.h"
#include "cc/cpu/store/slabs.h"
#include "cc/optimizers/rule.h"

namespace sok {

// For optimizers that postpone a step's effect on rows without a gradient: the step at which each row was
// last current. Steps are counted from the last Restart. Threads may call SetCurrent, SetCurrentAt and missed
// for different rows at the same time.
class RowSteps {
 public:
  Status Reserve(int64_t rows) { return last_current_.Reserve(rows); }

  uint32_t now() const { return now_; }
  // Counts a step. Call SetCurrentAt for the rows that it updated, before or after.
  void Advance() { ++now_; }

  // The number of steps that `row` has missed.
  uint32_t missed(int64_t row) const { return now_ - last_current_[row]; }
  // Marks `row` as current as of now(), or as of `step`.
  void SetCurrent(int64_t row) { last_current_[row] = now_; }
  void SetCurrentAt(int64_t row, uint32_t step) { last_current_[row] = step; }
  void PrefetchRow(int64_t row) const { Prefetch<true>(&last_current_[row]); }

  // Rows from this number on have never been in use, and need no catch-up.
  int64_t rows_in_use() const { return rows_in_use_; }
  void Use(int64_t row) { rows_in_use_ = std::max(rows_in_use_, row + 1); }
  void Use(Span<const int64_t> rows) {
    for (int64_t row : rows) Use(row);
  }

  // Counts steps from 0 again; all rows count as current.
  void Restart() {
    for (int64_t row = 0; row < rows_in_use_; ++row) last_current_[row] = 0;
    now_ = 0;
  }

  // Calls visit(rows) on consecutive pieces of [0, rows_in_use()), for passes over the whole table.
  void ForAllRows(FunctionRef<void(Span<const int64_t> rows)> visit) const {
    constexpr int64_t kPiece = 1 << 16;
    std::vector<int64_t> rows;
    for (int64_t first = 0; first < rows_in_use_; first += kPiece) {
      rows.resize(static_cast<size_t>(std::min(kPiece, rows_in_use_ - first)));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = first + static_cast<int64_t>(i);
      visit(rows);
    }
  }

 private:
  RowColumn<uint32_t> last_current_;
  uint32_t now_ = 0;
  int64_t rows_in_use_ = 0;
};

// Records in other types are unpacked a few at a time: the calls, and the choice of loops for a record's
// types, cost as much as the work on a row.
constexpr int64_t kMostUnpacked = 4;
inline int64_t RowsUnpacked(const RecordLayout& layout) {
  return std::clamp<int64_t>(RecordScratch::kMostOnStack / layout.unpacked_stride(), 1, kMostUnpacked);
}

// The part of ForEachRow over rows [begin, end), on one thread. `unpacked` has room for the floats of
// RowsUnpacked(layout) records, or is null if records are floats.
//
// Records come from memory in two stages. While one block of rows is worked on, the first lines of the block
// after the next are prefetched, all at once. Most are on pages whose addresses the processor has to
// translate first. It waits for that, but translates several at a time; with work between the prefetches,
// only one or two would fit into the few hundred instructions that it looks ahead. The other lines of a
// record of the next block are then prefetched between the work on each two rows, and arrive while it goes
// on.
template <typename Ahead, typename Body>
void LoopOverRows(Span<const int64_t> rows, int64_t begin, int64_t end, const RowGradients* gradients,
                  RowStore* store, float* unpacked, const Ahead& ahead, const Body& body) {
  const RecordLayout& layout = store->layout();
  const int64_t floats = store->stride();
  const int64_t dim = store->dim();
  const int64_t block = std::min(
      PrefetchDistance(floats), std::max<int64_t>(RowGradients::kBlockFloats / std::max<int64_t>(dim, 1), 1));
  alignas(64) float scratch[RowGradients::kBlockFloats];
  const auto prefetch_record = [&](int64_t i) {
    if (i < end) PrefetchFloats<true>(reinterpret_cast<const float*>(store->record(rows[i])), floats);
  };
  const auto look_ahead = [&](int64_t first) {
    for (int64_t i = first; i < std::min(end, first + block); ++i) {
      ahead(rows[i]);
      Prefetch<true>(store->record(rows[i]));
    }
  };
  look_ahead(begin);
  look_ahead(begin + block);
  for (int64_t i = begin; i < begin + block; ++i) prefetch_record(i);
  const int64_t at_once = unpacked == nullptr ? 1 : RowsUnpacked(layout);
  for (int64_t first = begin; first < end; first += block) {
    const int64_t last = std::min(end, first + block);
    look_ahead(last + block);
    const float* g = gradients == nullptr ? nullptr : gradients->Block(first, last, scratch);
    for (int64_t i = first; i < last; i += at_once) {
      char* records[kMostUnpacked];
      const int64_t n = std::min(at_once, last - i);
      for (int64_t k = 0; k < n; ++k) records[k] = store->record(rows[i + k]);
      if (unpacked != nullptr) layout.Read({records, n}, unpacked);
      for (int64_t k = 0; k < n; ++k) {
        prefetch_record(i + k + block);
        const float* const row_g = g == nullptr ? nullptr : g + (i + k - first) * dim;
        body(i + k, row_g,
             unpacked != nullptr ? unpacked + k * layout.unpacked_stride()
                                 : reinterpret_cast<float*>(records[k]));
      }
      if (unpacked != nullptr) layout.WriteStep(unpacked, store->step(), {records, n});
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
  RecordScratch scratch(layout.is_plain() ? 0 : layout.unpacked_stride());
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
