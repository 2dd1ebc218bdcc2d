#include <algorithm>

#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/item_sorter.h"
#include "cuda/table/directory_rows.h"
#include "cuda/table/number_ids.h"

namespace sok {
namespace {

struct IsAbsent {
  const int64_t* rows;
  __device__ bool operator()(int64_t u) const { return rows[u] == kAbsentRow; }
};

__global__ void __launch_bounds__(kThreadsPerBlock) GiveRowsKernel(NewRows new_rows) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < new_rows.count; k += ThreadsOfGrid()) {
    const int t = PartOf(new_rows.begin, new_rows.tables, k);
    const RowSource& source = new_rows.sources[t];
    const int64_t row = RowToGive(source, k - new_rows.begin[t]);
    source.directory.keys[row] = new_rows.keys[k];
    source.directory.states[row] |= kRowInUse;
    new_rows.rows[k] = row;
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    CollectKernel(const int64_t* keys, const int32_t* which, int64_t n, int64_t* collected) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) collected[k] = keys[which[k]];
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    SpreadKernel(const int64_t* new_rows, const int32_t* which, int64_t n, int64_t* rows) {
  AwaitPreviousKernels();
  for (int64_t k = ThreadOfGrid(); k < n; k += ThreadsOfGrid()) rows[which[k]] = new_rows[k];
}

}  // namespace

Status ListAbsent(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, const int64_t* rows,
                  const SomeIds& absent) {
  return NumberIds("ListAbsent", stream, scratch, ids, IsAbsent{rows}, absent);
}

Status GiveRows(cudaStream_t stream, const NewRows& new_rows) {
  SOK_RETURN_IF_ERROR(Launch("GiveRows", stream, ShapeFor(new_rows.count), GiveRowsKernel, new_rows));
  GroupKeys group;
  group.tables = new_rows.tables;
  group.views = new_rows.indexes;
  group.begin = new_rows.begin;
  group.max_keys = new_rows.count;
  group.keys = new_rows.keys;
  return InsertKeys(stream, group, new_rows.rows);
}

Status CollectKeys(cudaStream_t stream, const IdsOfGroup& ids, const int32_t* which,
                   const NewRows& new_rows) {
  return Launch("CollectKeys", stream, ShapeFor(new_rows.count), CollectKernel, ids.keys, which,
                new_rows.count, new_rows.keys);
}

Status SpreadRows(cudaStream_t stream, const NewRows& new_rows, const int32_t* which, int64_t* rows) {
  return Launch("SpreadRows", stream, ShapeFor(new_rows.count), SpreadKernel, new_rows.rows, which,
                new_rows.count, rows);
}

namespace {

// The number of low bits that distinguish rows below `row_limit` from each other and from kAbsentRow, whose
// bits are all set.
int BitsOfRows(int64_t row_limit) {
  int bits = 1;
  while (bits < 63 && (int64_t{1} << bits) - 1 < row_limit) ++bits;
  return bits;
}

struct RowAt {
  const int64_t* rows;
  __device__ uint64_t operator()(int64_t i) const { return static_cast<uint64_t>(rows[i]); }
};

__global__ void __launch_bounds__(kThreadsPerBlock) CountUpKernel(int64_t n, int32_t* items) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) items[i] = static_cast<int32_t>(i);
}

// Flags the first of equal rows in rows[order[0]], rows[order[1]], ..., which are sorted, with kAbsentRow at
// the end.
struct IsFirstOfRow {
  const int64_t* rows;
  const int32_t* order;
  __device__ bool operator()(int64_t i) const {
    const int64_t row = rows[order[i]];
    return row != kAbsentRow && (i == 0 || rows[order[i - 1]] != row);
  }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    CompactKernel(FlagRanks ranks, const int64_t* rows, const int32_t* order, int64_t n, int64_t* distinct,
                  int64_t* count) {
  AwaitPreviousKernels();
  if (ThreadOfGrid() == 0) *count = ranks.Before(n);
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    if (ranks.IsFlagged(i)) distinct[ranks.Before(i)] = rows[order[i]];
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    FreeRowsKernel(KeyDirectoryView directory, int64_t num_free, const int64_t* rows, int64_t n,
                   int64_t* keys) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t row = rows[i];
    keys[i] = directory.keys[row];
    directory.states[row] = FreedState(directory.states[row]);
    directory.free_rows[num_free + i] = row;
  }
}

}  // namespace

Status SortDistinctRows(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* rows, int64_t n,
                        int64_t row_limit, int64_t* distinct, int64_t* count) {
  ItemSorter sorter(stream, scratch, n);
  SOK_RETURN_IF_ERROR(sorter.Reserve());
  SOK_RETURN_IF_ERROR(Launch("CountUp", stream, ShapeFor(n), CountUpKernel, n, sorter.items()));
  SOK_RETURN_IF_ERROR(sorter.SortBy(RowAt{rows}, BitsOfRows(row_limit)));
  RankedFlags firsts;
  SOK_RETURN_IF_ERROR(
      RankFlags("IsFirstOfRow", stream, scratch, n, IsFirstOfRow{rows, sorter.items()}, &firsts));
  return Launch("SortDistinctRows", stream, ShapeFor(std::max<int64_t>(n, 1)), CompactKernel, firsts.ranks(),
                rows, sorter.items(), n, distinct, count);
}

Status EraseRows(cudaStream_t stream, const KeyDirectory& directory, int64_t* rows, int64_t n,
                 int64_t* keys) {
  SOK_RETURN_IF_ERROR(Launch("FreeRows", stream, ShapeFor(n), FreeRowsKernel, directory.view(),
                             directory.num_free(), rows, n, keys));
  // This overwrites `rows` with the rows that the keys had, which are the same.
  return EraseKeys(stream, directory.view().index, keys, n, rows);
}

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    MakeReferencesKernel(IdsOfGroup ids, const ColumnView<uint32_t>* states, int64_t* rows) {
  AwaitPreviousKernels();
  const int64_t n = ids.begin[ids.tables];
  for (int64_t u = ThreadOfGrid(); u < n; u += ThreadsOfGrid()) {
    const ColumnView<uint32_t>& of_table = states[PartOf(ids.begin, ids.tables, u)];
    const int64_t row = rows[u];
    if (!of_table.is_null() && row >= 0) rows[u] = ReferenceTo(row, of_table[row]);
  }
}

__device__ __forceinline__ void NoteFirst(uint64_t* first, int64_t i) {
  atomicMin(reinterpret_cast<unsigned long long*>(first), static_cast<unsigned long long>(i));
}

__global__ void __launch_bounds__(kThreadsPerBlock) ResolveKernel(ReferencedRows in) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < in.n; i += ThreadsOfGrid()) {
    const int64_t reference = in.references[i];
    const bool has_generation = !in.states.is_null() && reference >= 0;
    int64_t row = has_generation ? RowOf(reference) : reference;
    const bool is_known = row == kAbsentRow ? in.may_be_absent : row >= 0 && row < in.row_limit;
    if (!is_known) {
      NoteFirst(in.first_unknown, i);
      row = kAbsentRow;
    } else if (has_generation && !IsCurrentReference(reference, in.states[row])) {
      if (in.first_stale != nullptr) NoteFirst(in.first_stale, i);
      row = kAbsentRow;
    }
    if (in.rows != nullptr) in.rows[i] = row;
  }
}

}  // namespace

Status MakeReferences(cudaStream_t stream, const IdsOfGroup& ids, const ColumnView<uint32_t>* states,
                      int64_t* rows) {
  return Launch("MakeReferences", stream, ShapeFor(ids.max), MakeReferencesKernel, ids, states, rows);
}

Status ResolveReferences(cudaStream_t stream, const ReferencedRows& referenced) {
  return Launch("ResolveReferences", stream, ShapeFor(referenced.n), ResolveKernel, referenced);
}

}  // namespace sok
