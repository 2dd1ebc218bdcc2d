// New rows in all tables of a group.
#ifndef SOK_CUDA_TABLE_INSERT_ROWS_H_
#define SOK_CUDA_TABLE_INSERT_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/initializers/initializer.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"
#include "cuda/index/key_index.h"
#include "cuda/store/row_store_view.h"
#include "cuda/table/device_table.h"
#include "cuda/table/directory_rows.h"
#include "cuda/table/key_directory.h"

namespace sok {

// New rows for ids of a group's tables, in one kernel.

// A table that gets new rows.
struct RowMaker {
  RowSource source;
  RowStoreView store;
  Initializer initializer;
  uint64_t seed = 0;  // of the records' format
};

// The ids that get rows. All arrays are on the device.
struct RowsToMake {
  int tables = 0;
  const RowMaker* makers = nullptr;  // [tables]
  const int64_t* keys = nullptr;     // of the group's ids
  SomeIds some;                      // these ids: distinct in a table and absent
  int64_t count = 0;                 // some.begin[tables]
  int64_t max_width = 0;             // of the stores
  int64_t* made = nullptr;           // [count]
  int64_t* rows = nullptr;           // of the group's ids
};

// Assigns rows to the ids in order, as GiveRows does, inserts their keys into the indexes, gives the records
// their initial contents, and writes made[k] and rows[some.which[k]]. Every directory and store must have
// reserved room; the caller counts the rows of each table (KeyDirectory::CountGiven). Internal if the kernel
// cannot be launched.
Status MakeRows(cudaStream_t stream, const RowsToMake& work);

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
//
// bring_up() is called before the new records are written, when rows[u] are known for all ids if a table has
// tiers: so new rows need not be written in host memory first. With a disk it may need `scratch`: if it
// fails, evicted rows are gone and nothing was inserted.
Status InsertRows(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<DeviceTable* const> tables, const IdsOfGroup& ids, const SomeIds& some,
                  Span<const int64_t> begin, Span<const EvictedRows> evicted, int64_t* rows,
                  FunctionRef<Status()> bring_up);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_INSERT_ROWS_H_
