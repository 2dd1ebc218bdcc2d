#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/store/row_column.h"
#include "cuda/table/select_rows.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    ListRowsKernel(FlagRanks ranks, int64_t n, int64_t* rows, int64_t* count) {
  if (ThreadOfGrid() == 0) *count = ranks.Before(n);
  for (int64_t row = ThreadOfGrid(); row < n; row += ThreadsOfGrid()) {
    if (ranks.IsFlagged(row)) rows[ranks.Before(row)] = row;
  }
}

template <typename Flag>
Status Select(const char* what, cudaStream_t stream, DeviceAllocator* scratch, int64_t n, const Flag& flag,
              SelectedRows* selected) {
  if (n > std::numeric_limits<int32_t>::max()) {
    return ResourceExhausted("cannot list the rows of a table that has had ", n, " on a device");
  }
  StatusOr<DeviceBuffer<int64_t>> rows = DeviceBuffer<int64_t>::Allocate(scratch, stream, n);
  SOK_RETURN_IF_ERROR(rows.status());
  StatusOr<DeviceBuffer<int64_t>> count = DeviceBuffer<int64_t>::Allocate(scratch, stream, 1);
  SOK_RETURN_IF_ERROR(count.status());
  selected->rows = std::move(rows.value());
  selected->count = std::move(count.value());
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(RankFlags(what, stream, scratch, n, flag, &flags));
  return Launch(what, stream, ShapeFor(std::max<int64_t>(n, 1)), ListRowsKernel, flags.ranks(), n,
                selected->rows.data(), selected->count.data());
}

// Null states: every row is in use.
struct UseOfRows {
  const uint32_t* states;
  __device__ bool operator()(int64_t row) const { return states == nullptr || IsInUse(states[row]); }
};
UseOfRows UseOf(const DeviceTable& table) {
  return {table.options().use_hashtable ? table.directory().view().states : nullptr};
}

struct IsUnused {
  UseOfRows in_use;
  ColumnView<int64_t> last_step;
  int64_t oldest;
  __device__ bool operator()(int64_t row) const { return in_use(row) && last_step[row] < oldest; }
};

struct IsSmall {
  UseOfRows in_use;
  RowStoreView rows;
  float threshold;
  __device__ bool operator()(int64_t row) const {
    if (!in_use(row)) return false;
    const float* const weights = rows.Record(row);
    double sum = 0.0;
    for (int64_t c = 0; c < rows.dim; ++c) sum += static_cast<double>(weights[c]) * weights[c];
    return 0.5 * sum < threshold;
  }
};

struct IsChanged {
  UseOfRows in_use;
  const uint32_t* changed;  // null: all count
  __device__ bool operator()(int64_t row) const {
    return in_use(row) && (changed == nullptr || (changed[row / 32] >> (row % 32) & 1) != 0);
  }
};

struct IsWaiting {
  IsChanged changed;
  ColumnView<int64_t> last_steps;
  int64_t oldest;
  __device__ bool operator()(int64_t place) const { return changed(place) && last_steps[place] < oldest; }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    GatherWaitingKernel(WaitingView waiting, const int64_t* places, int64_t n, int64_t* gathered) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    gathered[i] = waiting.directory.keys[places[i]];
    gathered[n + i] = waiting.counts[places[i]];
    gathered[2 * n + i] = waiting.last_steps[places[i]];
  }
}

// The bits of what has changed, or nothing.
Status ChangedBits(cudaStream_t stream, DeviceAllocator* scratch, const DeviceRowChanges& changes,
                   int64_t rows, DeviceBuffer<uint32_t>* bits) {
  const int64_t words = (rows + 31) / 32;
  StatusOr<DeviceBuffer<uint32_t>> made = DeviceBuffer<uint32_t>::Allocate(scratch, stream, words + 1);
  SOK_RETURN_IF_ERROR(made.status());
  *bits = std::move(made.value());
  return changes.WriteChanged(stream, words, bits->data());
}

}  // namespace

Status SelectWaiting(cudaStream_t stream, DeviceAllocator* scratch, DeviceWaiting* waiting, bool changed_only,
                     int64_t oldest, SelectedRows* selected) {
  DeviceBuffer<uint32_t> changed;
  if (changed_only) {
    SOK_RETURN_IF_ERROR(ChangedBits(stream, scratch, waiting->changes(), waiting->limit(), &changed));
  }
  const WaitingView view = waiting->view();
  return Select("SelectWaiting", stream, scratch, waiting->limit(),
                IsWaiting{{{view.directory.states}, changed.data()}, view.last_steps, oldest}, selected);
}

Status GatherWaiting(cudaStream_t stream, const DeviceWaiting& waiting, const int64_t* places, int64_t n,
                     int64_t* gathered) {
  return Launch("GatherWaiting", stream, ShapeFor(n), GatherWaitingKernel, waiting.view(), places, n,
                gathered);
}

Status SelectUnused(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, int64_t oldest,
                    SelectedRows* selected) {
  return Select("SelectUnused", stream, scratch, table->row_limit(),
                IsUnused{UseOf(*table), table->usage().last_step->view(), oldest}, selected);
}

Status SelectSmall(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, float threshold,
                   SelectedRows* selected) {
  return Select("SelectSmall", stream, scratch, table->row_limit(),
                IsSmall{UseOf(*table), table->rows(), threshold}, selected);
}

Status SelectInUse(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, bool changed_only,
                   SelectedRows* selected) {
  DeviceBuffer<uint32_t> changed;
  if (changed_only) {
    SOK_RETURN_IF_ERROR(ChangedBits(stream, scratch, table->changes(), table->row_limit(), &changed));
  }
  return Select("SelectInUse", stream, scratch, table->row_limit(), IsChanged{UseOf(*table), changed.data()},
                selected);
}

}  // namespace sok
