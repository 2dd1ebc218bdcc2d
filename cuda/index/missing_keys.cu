#include <algorithm>
#include <limits>

#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/base/parts.h"
#include "cuda/index/missing_keys.h"
#include "cuda/scan/flag_ranks.h"

namespace sok {
namespace {

// Finds the row of key number i; true where there is none.
struct FindRowOfKey {
  GroupKeys group;
  int64_t* rows;

  __device__ bool operator()(int64_t i) const {
    if (i >= group.begin[group.tables]) return false;
    const int64_t row = FindRow(group.views[PartOf(group.begin, group.tables, i)], group.keys[i]);
    rows[i] = row;
    return row == kAbsentRow;
  }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    ListMissingKernel(FlagRanks missing_ranks, GroupKeys group, MissingKeys missing) {
  const int64_t n = group.begin[group.tables];
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    if (missing_ranks.IsFlagged(i)) missing.which[missing_ranks.Before(i)] = static_cast<int32_t>(i);
  }
  for (int64_t t = ThreadOfGrid(); t <= group.tables; t += ThreadsOfGrid()) {
    missing.begin[t] = missing_ranks.Before(group.begin[t]);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    AssignRowsKernel(int tables, MissingKeys missing, const RowSupply* supplies, int64_t* rows) {
  const int64_t n = missing.begin[tables];
  for (int64_t m = ThreadOfGrid(); m < n; m += ThreadsOfGrid()) {
    const int table = PartOf<int64_t>(missing.begin, tables, m);
    const RowSupply& supply = supplies[table];
    const int64_t number = m - missing.begin[table];
    rows[missing.which[m]] = number < supply.num_freed ? supply.freed[supply.num_freed - 1 - number]
                                                       : supply.first_new + (number - supply.num_freed);
  }
}

}  // namespace

Status FindKeysAndMissing(cudaStream_t stream, DeviceAllocator* scratch, const GroupKeys& keys, int64_t* rows,
                          const MissingKeys& missing) {
  if (keys.max_keys > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("a group looks up at most 2^31 - 1 distinct ids, got ", keys.max_keys);
  }
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(
      RankFlags("FindKeysAndMissing", stream, scratch, keys.max_keys, FindRowOfKey{keys, rows}, &flags));
  const int64_t threads = std::max<int64_t>(keys.max_keys, keys.tables + 1);
  return Launch("ListMissing", stream, ShapeFor(threads), ListMissingKernel, flags.ranks(), keys, missing);
}

Status AssignRows(cudaStream_t stream, int tables, const MissingKeys& missing, int64_t max_missing,
                  const RowSupply* supplies, int64_t* rows) {
  return Launch("AssignRows", stream, ShapeFor(max_missing), AssignRowsKernel, tables, missing, supplies,
                rows);
}

}  // namespace sok
