// Copies parts of rows out of a table and back, for checkpoints and for values that users assign.
#ifndef SOK_CUDA_STORE_ROW_PIECES_H_
#define SOK_CUDA_STORE_ROW_PIECES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// Rows of one table: rows[n], in device memory, or if that is null the n rows from `first` on. Negative rows
// are skipped: what belongs to them is neither read nor written.
struct RowList {
  const int64_t* rows = nullptr;
  int64_t first = 0;
  int64_t n = 0;
};

// Each call enqueues one kernel; Internal if it cannot be launched. Arrays are in memory that kernels reach.

// values[i * columns + c] = float first_column + c of the record of row i of the list. The columns are within
// the record's width. Numbers in 16 bits are read exactly, and rounded to nearest when they are written.
Status GatherRows(cudaStream_t stream, const RowStoreView& store, const RowList& rows, int64_t first_column,
                  int64_t columns, float* values);
// The other way. Rows are distinct.
Status ScatterRows(cudaStream_t stream, const RowStoreView& store, const RowList& rows, int64_t first_column,
                   int64_t columns, const float* values);

// values[i] = the column's value at row i of the list.
Status GatherColumn(cudaStream_t stream, const ColumnView<int64_t>& column, const RowList& rows,
                    int64_t* values);
Status GatherColumn(cudaStream_t stream, const ColumnView<uint32_t>& column, const RowList& rows,
                    uint32_t* values);
// The other way. Rows are distinct.
Status ScatterColumn(cudaStream_t stream, const ColumnView<int64_t>& column, const RowList& rows,
                     const int64_t* values);
Status ScatterColumn(cudaStream_t stream, const ColumnView<uint32_t>& column, const RowList& rows,
                     const uint32_t* values);
// Sets the column to `value` at all rows of the list, which may repeat.
Status FillColumn(cudaStream_t stream, const ColumnView<int64_t>& column, const RowList& rows, int64_t value);
Status FillColumn(cudaStream_t stream, const ColumnView<uint32_t>& column, const RowList& rows,
                  uint32_t value);

}  // namespace sok

#endif  // SOK_CUDA_STORE_ROW_PIECES_H_
