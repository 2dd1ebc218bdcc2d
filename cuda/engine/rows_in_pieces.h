// Copies rows of a table from device to host memory and back, a piece at a time.
#ifndef SOK_CUDA_ENGINE_ROWS_IN_PIECES_H_
#define SOK_CUDA_ENGINE_ROWS_IN_PIECES_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/held_table.h"
#include "cuda/base/allocators.h"
#include "cuda/base/device_buffer.h"
#include "cuda/table/device_table.h"

namespace sok {

// The maximum number of rows in a piece: 32768, or fewer so that their records take at most 16 MiB, and with
// a disk fit into the host's memory, but at least one.
int64_t RowsOfPiece(const DeviceTable& table);

// The memory of a piece on both sides, used for one piece after the other. Read and Write wait for the
// device.
class RowsInPieces {
 public:
  RowsInPieces(cudaStream_t stream, DeviceAllocator* device, DeviceTable* table)
      : stream_(stream), device_(device), table_(*table) {}

  // Copies the rows numbered rows[n], on the device, to the host in that order, n <= RowsOfPiece. The result
  // is valid until the next call.
  StatusOr<RowPiece> Read(const RowParts& parts, const int64_t* rows, int64_t n);

  // Host memory for n rows, to be filled.
  StatusOr<RowsToFill> Prepare(const RowParts& parts, int64_t n);
  // Copies the filled rows to rows[n] on the device, which are distinct.
  Status Write(const RowParts& parts, const int64_t* rows, int64_t n);

 private:
  // A column: where its numbers are on the host and in the table.
  struct Column {
    bool is_wanted;
    std::vector<int64_t>* host;
    DeviceUsage::Column* of_table;
  };
  std::vector<Column> Columns(const RowParts& parts);

  Status Reserve(const RowParts& parts, int64_t n);
  Status ReadColumns(const RowParts& parts, const RowList& list);
  Status WriteColumns(const RowParts& parts, const RowList& list);
  // Copies n values to the host or from there, and waits.
  template <typename T>
  Status Copy(T* to, const T* from, int64_t n, cudaMemcpyKind kind);
  int64_t Floats(const RowParts& parts) const;
  float* Record(int64_t i, int64_t floats) const { return host_records_.data() + i * floats; }

  cudaStream_t stream_;
  DeviceAllocator* device_;
  DeviceTable& table_;
  DeviceBuffer<float> records_;
  DeviceBuffer<int64_t> numbers_;  // a column
  PinnedBuffer<float> host_records_;
  std::vector<int64_t> rows_;
  std::vector<int64_t> keys_;
  std::vector<const float*> record_pointers_;
  std::vector<float*> records_to_fill_;
  std::vector<int64_t> frequency_;
  std::vector<int64_t> last_step_;
  std::vector<int64_t> last_used_;
  std::vector<int64_t> last_current_;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_ROWS_IN_PIECES_H_
