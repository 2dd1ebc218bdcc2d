#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/store/lanes.h"
#include "cuda/store/row_pieces.h"

namespace sok {
namespace {

__device__ __forceinline__ int64_t RowAt(const RowList& list, int64_t i) {
  return list.rows == nullptr ? list.first + i : list.rows[i];
}

// Calls copy(float of a record, position in the array of values) for all rows and columns.
template <typename Copy>
__global__ void __launch_bounds__(kThreadsPerBlock)
    CopyRowsKernel(RowStoreView store, RowList rows, int64_t first_column, int64_t columns, int lane_bits,
                   Copy copy) {
  const Lanes lanes(lane_bits);
  for (int64_t i = lanes.first(); i < rows.n; i += lanes.step()) {
    const int64_t row = RowAt(rows, i);
    if (row < 0) continue;
    float* const record = store.Record(row) + first_column;
    for (int64_t c = lanes.lane(); c < columns; c += lanes.count()) copy(record[c], i * columns + c);
  }
}

struct FromRecord {
  float* values;
  __device__ void operator()(const float& element, int64_t at) const { values[at] = element; }
};
struct ToRecord {
  const float* values;
  __device__ void operator()(float& element, int64_t at) const { element = values[at]; }
};

template <typename Copy>
Status CopyRows(const char* what, cudaStream_t stream, const RowStoreView& store, const RowList& rows,
                int64_t first_column, int64_t columns, const Copy& copy) {
  if (columns == 0) return OkStatus();
  const int lane_bits = LaneBitsFor(columns);
  return Launch(what, stream, ShapeFor(rows.n, 1 << lane_bits), CopyRowsKernel<Copy>, store, rows,
                first_column, columns, lane_bits, copy);
}

// Calls copy(value of the column, position in the list) for all rows.
template <typename T, typename Copy>
__global__ void __launch_bounds__(kThreadsPerBlock)
    CopyColumnKernel(ColumnView<T> column, RowList rows, Copy copy) {
  for (int64_t i = ThreadOfGrid(); i < rows.n; i += ThreadsOfGrid()) {
    const int64_t row = RowAt(rows, i);
    if (row >= 0) copy(column[row], i);
  }
}

template <typename T>
struct FromColumn {
  T* values;
  __device__ void operator()(const T& value, int64_t at) const { values[at] = value; }
};
template <typename T>
struct ToColumn {
  const T* values;
  __device__ void operator()(T& value, int64_t at) const { value = values[at]; }
};
template <typename T>
struct Fill {
  T fill;
  __device__ void operator()(T& value, int64_t) const { value = fill; }
};

template <typename T, typename Copy>
Status CopyColumn(const char* what, cudaStream_t stream, const ColumnView<T>& column, const RowList& rows,
                  const Copy& copy) {
  return Launch(what, stream, ShapeFor(rows.n), CopyColumnKernel<T, Copy>, column, rows, copy);
}

}  // namespace

Status GatherRows(cudaStream_t stream, const RowStoreView& store, const RowList& rows, int64_t first_column,
                  int64_t columns, float* values) {
  return CopyRows("GatherRows", stream, store, rows, first_column, columns, FromRecord{values});
}

Status ScatterRows(cudaStream_t stream, const RowStoreView& store, const RowList& rows, int64_t first_column,
                   int64_t columns, const float* values) {
  return CopyRows("ScatterRows", stream, store, rows, first_column, columns, ToRecord{values});
}

Status GatherColumn(cudaStream_t stream, const ColumnView<int64_t>& column, const RowList& rows,
                    int64_t* values) {
  return CopyColumn("GatherColumn", stream, column, rows, FromColumn<int64_t>{values});
}

Status GatherColumn(cudaStream_t stream, const ColumnView<uint32_t>& column, const RowList& rows,
                    uint32_t* values) {
  return CopyColumn("GatherColumn", stream, column, rows, FromColumn<uint32_t>{values});
}

Status ScatterColumn(cudaStream_t stream, const ColumnView<int64_t>& column, const RowList& rows,
                     const int64_t* values) {
  return CopyColumn("ScatterColumn", stream, column, rows, ToColumn<int64_t>{values});
}

Status ScatterColumn(cudaStream_t stream, const ColumnView<uint32_t>& column, const RowList& rows,
                     const uint32_t* values) {
  return CopyColumn("ScatterColumn", stream, column, rows, ToColumn<uint32_t>{values});
}

Status FillColumn(cudaStream_t stream, const ColumnView<int64_t>& column, const RowList& rows,
                  int64_t value) {
  return CopyColumn("FillColumn", stream, column, rows, Fill<int64_t>{value});
}

Status FillColumn(cudaStream_t stream, const ColumnView<uint32_t>& column, const RowList& rows,
                  uint32_t value) {
  return CopyColumn("FillColumn", stream, column, rows, Fill<uint32_t>{value});
}

}  // namespace sok
