#include <algorithm>

#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/item_sorter.h"
#include "cuda/table/erase_rows.h"

namespace sok {
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
  if (ThreadOfGrid() == 0) *count = ranks.Before(n);
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    if (ranks.IsFlagged(i)) distinct[ranks.Before(i)] = rows[order[i]];
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    FreeRowsKernel(KeyDirectoryView directory, int64_t num_free, const int64_t* rows, int64_t n,
                   int64_t* keys) {
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

}  // namespace sok
