#include "cc/cpu/group/direct_lookup.h"

#include <algorithm>
#include <utility>

#include "cc/base/prefetch.h"
#include "cc/base/shared_loop.h"
#include "cc/base/status.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/pooling/bag_ranges.h"
#include "cc/cpu/pooling/pool.h"
#include "cc/initializers/initializer.h"

namespace sok {
namespace {

// The number of ids that are found before their rows are read; more if a single bag has more.
constexpr int64_t kBlockIds = 2048;

// With more ids per row of the table than this, most ids are repeated or have no row, and merging is faster.
// Measured with 41 000 skewed ids and rows of 16 floats: with 10 000 rows both ways take equally long;
// reading directly is faster with more rows, merging with fewer.
constexpr int64_t kIdsPerRow = 4;

// The most nanoseconds, per id of a block, that the block's initial rows may take. With uniform values this
// allows all ids of a block to be without a row if dim is 16, and 65 % of them if dim is 64. Measured: if
// absent ids are skewed, merging is faster from 25 % of absent ids on with rows of 64 floats, and hardly ever
// with rows of 16; if they are distinct, merging is never faster. With this limit the chosen way takes at
// most about 1.5 times as long as the better one.
constexpr int64_t kInitialRowsNsPerId = 24;

// The nanoseconds that the initial row of an id takes.
int64_t InitialRowNs(const Table& table) {
  const InitializerKind kind = table.options().initializer.kind;
  // With a filter one row serves all ids. Rows that need not be drawn are copied faster than ids are merged.
  const bool is_drawn = kind != InitializerKind::kConstant && kind != InitializerKind::kGiven;
  if (table.options().admission.filters() || !is_drawn) return 0;
  const int64_t dim = table.options().dim;
  return 16 + (kind == InitializerKind::kUniform ? dim / 3 : 6 * dim);
}

// The nanoseconds that it takes to find an id and to read its row, mostly from memory.
int64_t IdCost(int64_t dim) { return 16 + dim / 4; }

// Reads a range of a lookup's bags, on one thread.
class DirectReader {
 public:
  DirectReader(const Table& table, const LookupBags& lookup, Span<const int64_t> ids,
               const OutputRows& output, OutputStores stores, DirectScratch* scratch,
               std::atomic<bool>* gave_up)
      : table_(table),
        lookup_(lookup),
        ids_(ids),
        output_(output),
        stores_(stores),
        dim_(table.options().dim),
        initial_row_ns_(InitialRowNs(table)),
        scratch_(*scratch),
        gave_up_(*gave_up) {}

  // Prefetches the rows of a block while it reads those of the block before.
  Status Read(int64_t first, int64_t last) {
    if (gave_up()) return OkStatus();
    IdBlock* block = &scratch_.blocks[0];
    IdBlock* next = &scratch_.blocks[1];
    SOK_RETURN_IF_ERROR(Find(first, last, block));
    while (block->first < last && !gave_up()) {
      SOK_RETURN_IF_ERROR(Find(block->last, last, next));
      Write(*block);
      std::swap(block, next);
    }
    return OkStatus();
  }

 private:
  // Relaxed, because the flag only saves work here: the caller reads it after the executor's threads have
  // finished.
  bool gave_up() const { return gave_up_.load(std::memory_order_relaxed); }

  // The id at which a bag begins.
  int64_t Begin(int64_t bag) const { return lookup_.pooled ? lookup_.offsets[bag] : bag; }

  // The end of the block of bags that begins with `first`.
  int64_t EndOfBlock(int64_t first, int64_t last) const {
    if (!lookup_.pooled) return std::min(last, first + kBlockIds);
    const auto begin = lookup_.offsets.begin();
    const auto over = std::upper_bound(begin + first + 1, begin + last + 1, Begin(first) + kBlockIds);
    return std::min(last, std::max<int64_t>(first + 1, over - begin - 1));
  }

  // Finds the rows of a block from bag `first` on, and prefetches the first of them.
  Status Find(int64_t first, int64_t last, IdBlock* block) const {
    block->first = first;
    block->last = first < last ? EndOfBlock(first, last) : last;
    const int64_t begin = Begin(first);
    block->numbers.resize(Begin(block->last) - begin);
    InlineExecutor executor;
    SOK_RETURN_IF_ERROR(
        table_.Find(executor, ids_.subspan(begin, Begin(last) - begin), Span<int64_t>(block->numbers)));
    if (!FillPointers(ids_.subspan(begin, block->numbers.size()), block)) {
      gave_up_.store(true, std::memory_order_relaxed);
      return OkStatus();
    }
    const RowsInPlace rows = block->pointers.rows();
    const int64_t asked = std::min<int64_t>(rows.size(), PrefetchDistance(dim_));
    rows.Visit([&](auto /*elements*/, auto pointers) {
      for (int64_t i = 0; i < asked; ++i) PrefetchRow(pointers[i], dim_);
    });
    return OkStatus();
  }

  // Returns false if the initial rows of a block take too long.
  bool FillPointers(Span<const int64_t> ids, IdBlock* block) const {
    const int64_t absent = block->pointers.PointToRows(table_, block->numbers);
    if (absent == 0) return true;
    if (absent * initial_row_ns_ > ids.size() * kInitialRowsNsPerId) return false;
    block->pointers.MakeInitialRows(table_, ids, absent);
    return true;
  }

  void Write(const IdBlock& block) const {
    float* const out = output_.data + block.first * output_.stride;
    if (lookup_.pooled) {
      PoolRows(block.pointers.rows(),
               Span<const int64_t>(lookup_.offsets).subspan(block.first, block.last - block.first + 1),
               lookup_.combiner, dim_, out, output_.stride);
    } else {
      CopyRows(block.pointers.rows(), dim_, out, output_.stride, stores_);
    }
  }

  const Table& table_;
  const LookupBags& lookup_;
  const Span<const int64_t> ids_;
  const OutputRows& output_;
  const OutputStores stores_;
  const int64_t dim_;
  const int64_t initial_row_ns_;
  DirectScratch& scratch_;
  std::atomic<bool>& gave_up_;
};

}  // namespace

bool CanReadDirectly(const LookupPlan& plan, int t, const Table& table, int64_t ids) {
  return !plan.training && table.is_up_to_date() && ids <= kIdsPerRow * table.size() &&
         std::none_of(plan.lookups.begin(), plan.lookups.end(),
                      [t](const LookupBags& lookup) { return lookup.table == t && !lookup.weights.empty(); });
}

Status ReadDirectly(Executor& executor, const Table& table, const LookupBags& lookup, Span<const int64_t> ids,
                    const OutputRows& output, OutputStores stores, ObjectPool<DirectScratch>* scratch,
                    std::atomic<bool>* gave_up) {
  LowestError error;
  const auto read = [&](int64_t first, int64_t last) {
    error.Add(first, WithinMemory([&] {
                const ObjectPool<DirectScratch>::Lease memory = scratch->Take();
                DirectReader reader(table, lookup, ids, output, stores, memory.get(), gave_up);
                return reader.Read(first, last);
              }));
  };
  const int64_t cost = IdCost(table.options().dim);
  if (lookup.pooled) {
    ParallelForBagRanges(executor, lookup.offsets, cost, read);
  } else {
    executor.ParallelFor(lookup.count, cost, read);
  }
  return error.status();
}

}  // namespace sok
