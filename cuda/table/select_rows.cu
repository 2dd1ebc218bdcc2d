#include <algorithm>
#include <utility>

#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/record_numbers.h"
#include "cuda/table/select_rows.h"

namespace sok {
namespace {

// A flag of rows, for the rows of a window.
template <typename Flag>
struct InWindow {
  Flag flag;
  int64_t first;
  __device__ bool operator()(int64_t i) const { return flag(first + i); }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    ListRowsKernel(FlagRanks ranks, RowWindow window, int64_t* rows, int64_t* count) {
  AwaitPreviousKernels();
  if (ThreadOfGrid() == 0) *count = ranks.Before(window.n);
  for (int64_t i = ThreadOfGrid(); i < window.n; i += ThreadsOfGrid()) {
    if (ranks.IsFlagged(i)) rows[ranks.Before(i)] = window.first + i;
  }
}

template <typename Flag>
Status Select(const char* what, cudaStream_t stream, DeviceAllocator* scratch, const RowWindow& window,
              const Flag& flag, SelectedRows* selected) {
  SOK_ASSIGN_OR_RETURN(auto rows, DeviceBuffer<int64_t>::Allocate(scratch, stream, window.n));
  SOK_ASSIGN_OR_RETURN(auto count, DeviceBuffer<int64_t>::Allocate(scratch, stream, 1));
  selected->rows = std::move(rows);
  selected->count = std::move(count);
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(RankFlags(what, stream, scratch, window.n, InWindow<Flag>{flag, window.first}, &flags));
  return Launch(what, stream, ShapeFor(std::max<int64_t>(window.n, 1)), ListRowsKernel, flags.ranks(), window,
                selected->rows.data(), selected->count.data());
}

// If `states` is null, every row is in use.
struct UseOfRows {
  ColumnView<uint32_t> states;
  __device__ bool operator()(int64_t row) const { return states.is_null() || IsInUse(states[row]); }
};
UseOfRows UseOf(const DeviceTable& table) {
  return {table.options().use_hashtable ? table.directory().view().states : ColumnView<uint32_t>()};
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
    const char* const weights = rows.Record(row);
    double sum = 0.0;
    for (int64_t c = 0; c < rows.dim; ++c) {
      const float weight = NumberAt(rows.shape.weight_type(), weights, c);
      sum += static_cast<double>(weight) * weight;
    }
    return 0.5 * sum < threshold;
  }
};

struct IsChanged {
  UseOfRows in_use;
  const uint32_t* changed;  // of a window that is not empty; null: all count
  int64_t first;            // of the window
  __device__ bool operator()(int64_t row) const {
    if (!in_use(row)) return false;
    const int64_t i = row - first;
    return changed == nullptr || (changed[i / 32] >> (i % 32) & 1) != 0;
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
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    gathered[i] = waiting.directory.keys[places[i]];
    gathered[n + i] = waiting.counts[places[i]];
    gathered[2 * n + i] = waiting.last_steps[places[i]];
  }
}

// The bits of what has changed in a window.
Status ChangedBits(cudaStream_t stream, DeviceAllocator* scratch, const DeviceRowChanges& changes,
                   const RowWindow& window, DeviceBuffer<uint32_t>* bits) {
  const int64_t words = (window.n + 31) / 32;
  SOK_ASSIGN_OR_RETURN(*bits, DeviceBuffer<uint32_t>::Allocate(scratch, stream, words));
  return changes.WriteChanged(stream, window.first / 32, words, bits->data());
}

}  // namespace

Status SelectWaiting(cudaStream_t stream, DeviceAllocator* scratch, DeviceWaiting* waiting,
                     const RowWindow& window, bool changed_only, int64_t oldest, SelectedRows* selected) {
  DeviceBuffer<uint32_t> changed;
  if (changed_only) SOK_RETURN_IF_ERROR(ChangedBits(stream, scratch, waiting->changes(), window, &changed));
  const WaitingView view = waiting->view();
  const IsChanged is_changed = {{view.directory.states}, changed.data(), window.first};
  return Select("SelectWaiting", stream, scratch, window, IsWaiting{is_changed, view.last_steps, oldest},
                selected);
}

Status GatherWaiting(cudaStream_t stream, const DeviceWaiting& waiting, const int64_t* places, int64_t n,
                     int64_t* gathered) {
  return Launch("GatherWaiting", stream, ShapeFor(n), GatherWaitingKernel, waiting.view(), places, n,
                gathered);
}

Status SelectUnused(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table,
                    const RowWindow& window, int64_t oldest, SelectedRows* selected) {
  return Select("SelectUnused", stream, scratch, window,
                IsUnused{UseOf(*table), table->usage().last_step->view(), oldest}, selected);
}

Status SelectSmall(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const RowWindow& window,
                   float threshold, SelectedRows* selected) {
  return Select("SelectSmall", stream, scratch, window, IsSmall{UseOf(*table), table->rows(), threshold},
                selected);
}

Status SelectInUse(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const RowWindow& window,
                   bool changed_only, SelectedRows* selected) {
  DeviceBuffer<uint32_t> changed;
  if (changed_only) SOK_RETURN_IF_ERROR(ChangedBits(stream, scratch, table->changes(), window, &changed));
  return Select("SelectInUse", stream, scratch, window,
                IsChanged{UseOf(*table), changed.data(), window.first}, selected);
}

namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    GatherKeysKernel(bool is_static, ColumnView<int64_t> keys_of_rows, StaticRows static_rows,
                     const int64_t* rows, int64_t n, int64_t* keys) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    keys[i] = is_static ? static_rows.KeyOf(rows[i]) : keys_of_rows[rows[i]];
  }
}

}  // namespace

Status GatherKeys(cudaStream_t stream, const DeviceTable& table, const int64_t* rows, int64_t n,
                  int64_t* keys) {
  return Launch("GatherKeys", stream, ShapeFor(n), GatherKeysKernel, !table.options().use_hashtable,
                table.directory().view().keys, table.static_rows(), rows, n, keys);
}

}  // namespace sok
