// New rows in all tables of a group.
#ifndef SOK_CUDA_TABLE_INSERT_ROWS_H_
#define SOK_CUDA_TABLE_INSERT_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"
#include "cuda/table/device_table.h"
#include "cuda/table/key_directory.h"

namespace sok {

// Rows that a full table gives up for new ones.
struct EvictedRows {
  DeviceBuffer<int64_t> rows;  // [n]: distinct and in use
  DeviceBuffer<int64_t> keys;  // [n]: scratch
  int64_t n = 0;
};

// Erases the evicted rows of each table, and inserts `some` of the ids of a group, which have no rows, with
// their initial rows: rows[u] becomes the row of id u. `begin` is a copy of some.begin on the host. `evicted`
// has an element for each table, or none. Every table must have reserved room (DeviceTable::Reserve,
// ReserveErase). Checks nothing. ResourceExhausted if `scratch` runs out of memory; then nothing was erased
// or inserted.
Status InsertRows(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<DeviceTable* const> tables, const IdsOfGroup& ids, const SomeIds& some,
                  Span<const int64_t> begin, Span<const EvictedRows> evicted, int64_t* rows);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_INSERT_ROWS_H_
