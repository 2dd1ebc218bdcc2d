// Selects rows of a table, for eviction and for saving.
#ifndef SOK_CUDA_TABLE_SELECT_ROWS_H_
#define SOK_CUDA_TABLE_SELECT_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/table/device_table.h"

namespace sok {

// Consecutive row numbers of a table, or places of ids that wait.
struct RowWindow {
  int64_t first = 0;  // a multiple of 32
  int64_t n = 0;      // below 2^31
};

// Rows on the device, in increasing order: rows[*count], with room for the whole window.
struct SelectedRows {
  DeviceBuffer<int64_t> rows;
  DeviceBuffer<int64_t> count;  // one
};

// Each call enqueues work that lists some of the rows in use in a window. ResourceExhausted if `scratch` runs
// out of memory; calls take about 9 bytes per row of the window. A table is read window by window, so that
// the memory does not grow with it.

// Rows whose last step is less than `oldest`; the table must have last steps.
Status SelectUnused(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table,
                    const RowWindow& window, int64_t oldest, SelectedRows* selected);
// Rows with 0.5 * sum of w^2 < threshold, summed in order as doubles.
Status SelectSmall(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const RowWindow& window,
                   float threshold, SelectedRows* selected);
// All rows that have changed since the last save, or all rows.
Status SelectInUse(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const RowWindow& window,
                   bool changed_only, SelectedRows* selected);

// Places of waiting ids instead of rows: all, or those that have changed since the last save, and only those
// with a last step less than `oldest`.
Status SelectWaiting(cudaStream_t stream, DeviceAllocator* scratch, DeviceWaiting* waiting,
                     const RowWindow& window, bool changed_only, int64_t oldest, SelectedRows* selected);
// The ids at places[n]: ids[n], counts[n] and last steps[n], one array after another.
Status GatherWaiting(cudaStream_t stream, const DeviceWaiting& waiting, const int64_t* places, int64_t n,
                     int64_t* gathered);

// keys[i] = the key of rows[i], a row in use. The arrays have n elements on the device.
Status GatherKeys(cudaStream_t stream, const DeviceTable& table, const int64_t* rows, int64_t n,
                  int64_t* keys);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_SELECT_ROWS_H_
