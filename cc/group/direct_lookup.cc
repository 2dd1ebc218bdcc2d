#include "cc/group/direct_lookup.h"

#include <algorithm>
#include <utility>

#include "cc/base/prefetch.h"
#include "cc/base/within_memory.h"
#include "cc/group/lowest_error.h"
#include "cc/pooling/bag_ranges.h"
#include "cc/pooling/pool.h"

namespace sok {
namespace {

// So many ids are found before their rows are read, and more where a bag has more.
constexpr int64_t kBlockIds = 2048;

// With more ids for a row of the table, most are repeated, or have no row: 41 000 skewed ids are read
// directly as fast as merged where there are 10 000 rows of 16, faster where there are more, and slower where
// fewer.
constexpr int64_t kIdsPerRow = 4;

// To find an id and to read its row, mostly from memory.
int64_t IdCost(int64_t dim) { return 16 + dim / 4; }

// Reads a range of a lookup's bags, on one thread.
class DirectReader {
 public:
  DirectReader(const Table& table, const Lookup& lookup, Span<const int64_t> ids, const OutputRows& output,
               OutputStores stores, DirectScratch* scratch)
      : table_(table),
        lookup_(lookup),
        ids_(ids),
        output_(output),
        stores_(stores),
        dim_(table.options().dim),
        scratch_(*scratch) {}

  // The rows of a block are asked for while those of the one before are read.
  Status Read(int64_t first, int64_t last) {
    IdBlock* block = &scratch_.blocks[0];
    IdBlock* next = &scratch_.blocks[1];
    SOK_RETURN_IF_ERROR(Find(first, last, block));
    while (block->first < last) {
      SOK_RETURN_IF_ERROR(Find(block->last, last, next));
      Write(*block);
      std::swap(block, next);
    }
    return OkStatus();
  }

 private:
  // The id at which a bag begins.
  int64_t Begin(int64_t bag) const { return lookup_.pooled ? lookup_.offsets[bag] : bag; }

  // The end of the block of bags that begins with `first`.
  int64_t EndOfBlock(int64_t first, int64_t last) const {
    if (!lookup_.pooled) return std::min(last, first + kBlockIds);
    const auto begin = lookup_.offsets.begin();
    const auto over = std::upper_bound(begin + first + 1, begin + last + 1, Begin(first) + kBlockIds);
    return std::min(last, std::max<int64_t>(first + 1, over - begin - 1));
  }

  // Finds the rows of a block from bag `first` on, and asks for the first of them.
  Status Find(int64_t first, int64_t last, IdBlock* block) const {
    block->first = first;
    block->last = first < last ? EndOfBlock(first, last) : last;
    const int64_t begin = Begin(first);
    block->numbers.resize(Begin(block->last) - begin);
    InlineExecutor executor;
    SOK_RETURN_IF_ERROR(
        table_.Find(executor, ids_.subspan(begin, Begin(last) - begin), Span<int64_t>(block->numbers)));
    SOK_RETURN_IF_ERROR(FillRows(ids_.subspan(begin, block->numbers.size()), block));
    const int64_t asked = std::min<int64_t>(block->rows.size(), PrefetchDistance(dim_));
    for (int64_t i = 0; i < asked; ++i) PrefetchFloats(block->rows[i], dim_);
    return OkStatus();
  }

  Status FillRows(Span<const int64_t> ids, IdBlock* block) const {
    block->rows.resize(ids.size());
    bool has_absent = false;
    for (int64_t i = 0; i < ids.size(); ++i) {
      const int64_t row = block->numbers[i];
      has_absent |= row == Table::kAbsent;
      block->rows[i] = row == Table::kAbsent ? nullptr : table_.weights(row);
    }
    if (!has_absent) return OkStatus();
    if (!table_.has_admission()) return FillInitial(ids, block);
    FillDefault(block);
    return OkStatus();
  }

  // Ids without a row read the default value where the table has admission,
  void FillDefault(IdBlock* block) const {
    block->initial.assign(dim_, table_.options().admission.default_value);
    std::replace(block->rows.begin(), block->rows.end(), static_cast<const float*>(nullptr),
                 static_cast<const float*>(block->initial.data()));
  }

  // else what an insertion would give them, which takes so long that it is made once for a block's equal ids.
  Status FillInitial(Span<const int64_t> ids, IdBlock* block) const {
    block->absent.clear();
    for (int64_t i = 0; i < ids.size(); ++i) {
      if (block->rows[i] == nullptr) block->absent.push_back(ids[i]);
    }
    block->inverse.resize(block->absent.size());
    InlineExecutor executor;
    SOK_RETURN_IF_ERROR(
        scratch_.deduplicator.Run(executor, block->absent, &block->unique, Span<int32_t>(block->inverse)));
    block->initial.resize(block->unique.size() * dim_);
    for (size_t u = 0; u < block->unique.size(); ++u) {
      table_.InitialRow(block->unique[u], Span<float>(block->initial.data() + u * dim_, dim_));
    }
    size_t next = 0;
    for (const float*& row : block->rows) {
      if (row == nullptr) row = block->initial.data() + block->inverse[next++] * dim_;
    }
    return OkStatus();
  }

  void Write(const IdBlock& block) const {
    float* const out = output_.data + block.first * output_.stride;
    if (lookup_.pooled) {
      PoolRows(block.rows,
               Span<const int64_t>(lookup_.offsets).subspan(block.first, block.last - block.first + 1),
               lookup_.combiner, dim_, out, output_.stride);
    } else {
      CopyRows(block.rows, dim_, out, output_.stride, stores_);
    }
  }

  const Table& table_;
  const Lookup& lookup_;
  const Span<const int64_t> ids_;
  const OutputRows& output_;
  const OutputStores stores_;
  const int64_t dim_;
  DirectScratch& scratch_;
};

}  // namespace

bool CanReadDirectly(const LookupPlan& plan, int t, const Table& table, int64_t ids) {
  return !plan.training && table.is_up_to_date() && ids <= kIdsPerRow * table.size() &&
         std::none_of(plan.lookups.begin(), plan.lookups.end(),
                      [t](const Lookup& lookup) { return lookup.table == t && !lookup.weights.empty(); });
}

Status ReadDirectly(Executor& executor, const Table& table, const Lookup& lookup, Span<const int64_t> ids,
                    const OutputRows& output, OutputStores stores, ObjectPool<DirectScratch>* scratch) {
  LowestError error;
  const auto read = [&](int64_t first, int64_t last) {
    error.Add(first, WithinMemory([&] {
                const ObjectPool<DirectScratch>::Lease memory = scratch->Take();
                return DirectReader(table, lookup, ids, output, stores, memory.get()).Read(first, last);
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
