#include "cuda/base/launch.h"
#include "cuda/base/parts.h"
#include "cuda/rows/part_launch.h"
#include "cuda/store/lanes.h"
#include "cuda/store/new_rows.h"

namespace sok {
namespace {

__device__ __forceinline__ void StartRow(const RowStoreView& store, const Initializer& initializer,
                                         int64_t key, int64_t row, const Lanes& lanes) {
  float* const record = store.Record(row);
  const bool is_given = initializer.kind == InitializerKind::kGiven;
  const float* const given = is_given ? GivenRow(initializer, store.dim, key) : nullptr;
  const uint64_t state = is_given ? 0 : InitialRowState(initializer, key);
  for (int64_t c = lanes.lane(); c < store.width; c += lanes.count()) {
    if (c >= store.dim) {
      record[c] = store.fills[c - store.dim];
    } else {
      record[c] = is_given ? given[c] : ValueFromBits(initializer, ColumnBits(state, c));
    }
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock) StartGroupKernel(GroupRows group, int lane_bits) {
  const Lanes lanes(lane_bits);
  const int64_t n = group.begin[group.tables];
  for (int64_t i = lanes.first(); i < n; i += lanes.step()) {
    const int64_t at = group.which == nullptr ? i : group.which[i];
    const int64_t row = group.rows[at];
    if (row < 0) continue;
    const int table = PartOf(group.begin, group.tables, i);
    StartRow(group.stores[table], group.initializers[table], group.keys[at], row, lanes);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    StartRowsKernel(RowStoreView store, Initializer initializer, const int64_t* keys, const int64_t* rows,
                    int64_t n, int lane_bits) {
  const Lanes lanes(lane_bits);
  for (int64_t i = lanes.first(); i < n; i += lanes.step()) {
    if (rows[i] >= 0) StartRow(store, initializer, keys[i], rows[i], lanes);
  }
}

}  // namespace

Status StartRows(cudaStream_t stream, const GroupRows& rows) {
  const int lane_bits = LanesLog2(rows.max_width, /*width=*/1);
  return Launch("StartRows", stream, ShapeFor(rows.max_rows, 1 << lane_bits), StartGroupKernel, rows,
                lane_bits);
}

Status StartRows(cudaStream_t stream, const RowStoreView& store, const Initializer& initializer,
                 const int64_t* keys, const int64_t* rows, int64_t n) {
  const int lane_bits = LanesLog2(store.width, /*width=*/1);
  return Launch("StartRows", stream, ShapeFor(n, 1 << lane_bits), StartRowsKernel, store, initializer, keys,
                rows, n, lane_bits);
}

}  // namespace sok
