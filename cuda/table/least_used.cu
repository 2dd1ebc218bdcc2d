#include <algorithm>
#include <cub/cub.cuh>
#include <limits>
#include <utility>

#include "cuda/base/cuda_status.h"
#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/store/row_column.h"
#include "cuda/table/least_used.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    KeepKernel(const int64_t* kept, int64_t n, uint32_t* bits) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t row = kept[i];
    if (row >= 0) atomicOr(&bits[row / 32], 1u << (row % 32));
  }
}

struct IsCandidate {
  const uint32_t* states;
  const uint32_t* kept;
  __device__ bool operator()(int64_t row) const {
    return IsInUse(states[row]) && (kept[row / 32] >> (row % 32) & 1) == 0;
  }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    ListCandidatesKernel(FlagRanks ranks, int64_t n, uint32_t* rows) {
  for (int64_t row = ThreadOfGrid(); row < n; row += ThreadsOfGrid()) {
    if (ranks.IsFlagged(row)) rows[ranks.Before(row)] = static_cast<uint32_t>(row);
  }
}

// Numbers of rows, as unsigned ones of the same order.
struct SignedKeys {
  const int64_t* keys;
  __device__ uint64_t operator()(int64_t row) const {
    return static_cast<uint64_t>(keys[row]) ^ (uint64_t{1} << 63);
  }
};
struct ColumnValues {
  ColumnView<int64_t> column;  // none is negative
  __device__ uint64_t operator()(int64_t row) const { return static_cast<uint64_t>(column[row]); }
};

template <typename Value>
__global__ void __launch_bounds__(kThreadsPerBlock)
    ValuesKernel(Value value, const uint32_t* rows, int64_t n, uint64_t* values) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) values[i] = value(rows[i]);
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    WidenKernel(const uint32_t* rows, int64_t n, int64_t* wide) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) wide[i] = rows[i];
}

// Rows that are sorted by one number after the other: stably, so that the last sort counts most.
class RowSorter {
 public:
  RowSorter(cudaStream_t stream, DeviceAllocator* scratch, int64_t n)
      : stream_(stream), scratch_(scratch), n_(n) {}

  Status Reserve() {
    for (DeviceBuffer<uint32_t>* rows : {&rows_, &sorted_rows_}) {
      StatusOr<DeviceBuffer<uint32_t>> made = DeviceBuffer<uint32_t>::Allocate(scratch_, stream_, n_);
      SOK_RETURN_IF_ERROR(made.status());
      *rows = std::move(made.value());
    }
    for (DeviceBuffer<uint64_t>* values : {&values_, &sorted_values_}) {
      StatusOr<DeviceBuffer<uint64_t>> made = DeviceBuffer<uint64_t>::Allocate(scratch_, stream_, n_);
      SOK_RETURN_IF_ERROR(made.status());
      *values = std::move(made.value());
    }
    return OkStatus();
  }

  uint32_t* rows() const { return rows_.data(); }

  template <typename Value>
  Status SortBy(const Value& value) {
    SOK_RETURN_IF_ERROR(Launch("ValuesOfRows", stream_, ShapeFor(n_), ValuesKernel<Value>, value,
                               rows_.data(), n_, values_.data()));
    const auto sort = [&](void* memory, size_t& bytes) {
      return CudaStatus(
          cub::DeviceRadixSort::SortPairs(memory, bytes, values_.data(), sorted_values_.data(), rows_.data(),
                                          sorted_rows_.data(), static_cast<int>(n_), 0, 64, stream_),
          "cannot sort ", n_, " rows");
    };
    size_t bytes = 0;
    SOK_RETURN_IF_ERROR(sort(nullptr, bytes));
    // The first call only asks for bytes where it gets no memory.
    StatusOr<DeviceBuffer<char>> memory =
        DeviceBuffer<char>::Allocate(scratch_, stream_, static_cast<int64_t>(std::max<size_t>(bytes, 1)));
    SOK_RETURN_IF_ERROR(memory.status());
    SOK_RETURN_IF_ERROR(sort(memory.value().data(), bytes));
    std::swap(rows_, sorted_rows_);
    return OkStatus();
  }

 private:
  cudaStream_t stream_;
  DeviceAllocator* scratch_;
  int64_t n_;
  DeviceBuffer<uint32_t> rows_;
  DeviceBuffer<uint32_t> sorted_rows_;
  DeviceBuffer<uint64_t> values_;
  DeviceBuffer<uint64_t> sorted_values_;
};

// Lists the rows in use that are not kept.
Status ListCandidates(cudaStream_t stream, DeviceAllocator* scratch, const DeviceTable& table,
                      const int64_t* kept, int64_t num_kept, uint32_t* rows) {
  const int64_t limit = table.row_limit();
  StatusOr<DeviceBuffer<uint32_t>> bits =
      DeviceBuffer<uint32_t>::Allocate(scratch, stream, (limit + 31) / 32);
  SOK_RETURN_IF_ERROR(bits.status());
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(bits.value().data(), 0, static_cast<size_t>(bits.value().bytes()), stream),
      "cannot clear ", bits.value().bytes(), " bytes on the device");
  SOK_RETURN_IF_ERROR(
      Launch("KeepRows", stream, ShapeFor(num_kept), KeepKernel, kept, num_kept, bits.value().data()));
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(RankFlags("IsCandidate", stream, scratch, limit,
                                IsCandidate{table.directory().view().states, bits.value().data()}, &flags));
  return Launch("ListCandidates", stream, ShapeFor(limit), ListCandidatesKernel, flags.ranks(), limit, rows);
}

}  // namespace

Status ListLeastUsed(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* kept,
                     int64_t num_kept, int64_t present, int64_t n, DeviceBuffer<int64_t>* rows) {
  if (table->row_limit() > std::numeric_limits<int32_t>::max()) {
    return ResourceExhausted("cannot sort the rows of a table that has had ", table->row_limit(),
                             " on a device");
  }
  RowSorter sorter(stream, scratch, table->size() - present);
  SOK_RETURN_IF_ERROR(sorter.Reserve());
  SOK_RETURN_IF_ERROR(ListCandidates(stream, scratch, *table, kept, num_kept, sorter.rows()));
  SOK_RETURN_IF_ERROR(sorter.SortBy(SignedKeys{table->directory().view().keys}));
  SOK_RETURN_IF_ERROR(sorter.SortBy(ColumnValues{table->usage().last_used->view()}));
  if (table->options().on_full == OnFull::kEvictLfu) {
    SOK_RETURN_IF_ERROR(sorter.SortBy(ColumnValues{table->usage().frequency->view()}));
  }
  StatusOr<DeviceBuffer<int64_t>> made = DeviceBuffer<int64_t>::Allocate(scratch, stream, n);
  SOK_RETURN_IF_ERROR(made.status());
  *rows = std::move(made.value());
  return Launch("WidenRows", stream, ShapeFor(n), WidenKernel, sorter.rows(), n, rows->data());
}

}  // namespace sok
