#include "cuda/base/floats.h"
#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/store/record_numbers.h"
#include "cuda/store/row_kernels.h"
#include "cuda/store/row_pieces.h"
#include "cuda/store/row_store_view.h"

namespace sok {
namespace {

__device__ __forceinline__ int64_t RowAt(const RowList& list, int64_t i) {
  return list.rows == nullptr ? list.first + i : list.rows[i];
}

// How many rows a few lanes copy together, so that they wait for all of them at once.
constexpr int kRowsAtOnce = 4;

// Copies kWidth floats at a time. copy.From(record, at) and copy.To(record, at) are where a float of a record
// is read and written, for position `at` in the array of values.
template <int kWidth, typename Copy>
__global__ void __launch_bounds__(kThreadsPerBlock)
    CopyRowsKernel(RowStoreView store, RowList rows, int64_t first_column, int64_t columns, int lane_bits,
                   Copy copy) {
  AwaitPreviousKernels();
  const Lanes lanes(lane_bits);
  for (int64_t i = lanes.first(); i < rows.n; i += kRowsAtOnce * lanes.step()) {
    float* records[kRowsAtOnce];  // null for a row that is skipped
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const int64_t at = i + k * lanes.step();
      const int64_t row = at < rows.n ? RowAt(rows, at) : -1;
      records[k] = row < 0 ? nullptr : store.FloatsOf(row) + first_column;
    }
    for (int64_t c = int64_t{kWidth} * lanes.lane(); c < columns; c += int64_t{kWidth} * lanes.count()) {
      Floats<kWidth> floats[kRowsAtOnce];
      for (int k = 0; k < kRowsAtOnce; ++k) {
        if (records[k] == nullptr) continue;
        floats[k] = LoadFloats<kWidth>(copy.From(records[k] + c, (i + k * lanes.step()) * columns + c));
      }
      for (int k = 0; k < kRowsAtOnce; ++k) {
        if (records[k] == nullptr) continue;
        StoreFloats(floats[k], copy.To(records[k] + c, (i + k * lanes.step()) * columns + c));
      }
    }
  }
}

struct FromRecords {
  float* values;
  __device__ const float* From(const float* record, int64_t) const { return record; }
  __device__ float* To(float*, int64_t at) const { return values + at; }
  __device__ void CopyNumber(const RowStoreView& store, char* record, int64_t c, int64_t at) const {
    values[at] = ReadNumber(store, record, c);
  }
};
struct ToRecords {
  const float* values;
  __device__ const float* From(const float*, int64_t at) const { return values + at; }
  __device__ float* To(float* record, int64_t) const { return record; }
  __device__ void CopyNumber(const RowStoreView& store, char* record, int64_t c, int64_t at) const {
    WriteNumber(store, record, c, values[at]);
  }
};

// The same for records with numbers in 16 bits, one number at a time.
template <typename Copy>
__global__ void __launch_bounds__(kThreadsPerBlock)
    CopyNumbersKernel(RowStoreView store, RowList rows, int64_t first_column, int64_t columns, int lane_bits,
                      Copy copy) {
  AwaitPreviousKernels();
  const Lanes lanes(lane_bits);
  for (int64_t i = lanes.first(); i < rows.n; i += lanes.step()) {
    const int64_t row = RowAt(rows, i);
    if (row < 0) continue;
    for (int64_t c = lanes.lane(); c < columns; c += lanes.count()) {
      copy.CopyNumber(store, store.Record(row), first_column + c, i * columns + c);
    }
  }
}

template <int kWidth, typename Copy>
Status CopyRowsByWidth(const char* what, cudaStream_t stream, const RowStoreView& store, const RowList& rows,
                       int64_t first_column, int64_t columns, const Copy& copy) {
  const int lane_bits = LanesLog2(columns, kWidth);
  const int64_t pieces = (rows.n + kRowsAtOnce - 1) / kRowsAtOnce;
  return Launch(what, stream, ShapeFor(pieces, 1 << lane_bits), CopyRowsKernel<kWidth, Copy>, store, rows,
                first_column, columns, lane_bits, copy);
}

template <typename Copy>
Status CopyRows(const char* what, cudaStream_t stream, const RowStoreView& store, const RowList& rows,
                int64_t first_column, int64_t columns, const Copy& copy) {
  if (columns == 0) return OkStatus();
  if (!store.shape.is_plain()) {
    const int lane_bits = LanesLog2(columns, /*width=*/1);
    return Launch(what, stream, ShapeFor(rows.n, 1 << lane_bits), CopyNumbersKernel<Copy>, store, rows,
                  first_column, columns, lane_bits, copy);
  }
  const bool fits_fours =
      first_column % 4 == 0 && store.record_bytes % 16 == 0 && FitsFours(copy.values, columns, columns);
  return fits_fours ? CopyRowsByWidth<4>(what, stream, store, rows, first_column, columns, copy)
                    : CopyRowsByWidth<1>(what, stream, store, rows, first_column, columns, copy);
}

// Calls copy(value of the column, position in the list) for all rows.
template <typename T, typename Copy>
__global__ void __launch_bounds__(kThreadsPerBlock)
    CopyColumnKernel(ColumnView<T> column, RowList rows, Copy copy) {
  AwaitPreviousKernels();
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
  return CopyRows("GatherRows", stream, store, rows, first_column, columns, FromRecords{values});
}

Status ScatterRows(cudaStream_t stream, const RowStoreView& store, const RowList& rows, int64_t first_column,
                   int64_t columns, const float* values) {
  return CopyRows("ScatterRows", stream, store, rows, first_column, columns, ToRecords{values});
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
