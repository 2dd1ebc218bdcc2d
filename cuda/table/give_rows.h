// Assigns rows to ids that have none, for all tables of a group at once.
#ifndef SOK_CUDA_TABLE_GIVE_ROWS_H_
#define SOK_CUDA_TABLE_GIVE_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/table/ids_of_group.h"
#include "cuda/table/key_directory.h"

namespace sok {

// Lists the ids u whose rows[u] is kAbsentRow. Takes about a bit of `scratch` per id.
Status ListAbsent(cudaStream_t stream, DeviceAllocator* scratch, const IdsOfGroup& ids, const int64_t* rows,
                  const SomeIds& absent);

// A table in which rows are assigned.
struct RowSource {
  KeyDirectoryView directory;
  int64_t num_free = 0;
  int64_t row_limit = 0;
};
inline RowSource SourceOf(const KeyDirectory& directory) {
  return {directory.view(), directory.num_free(), directory.row_limit()};
}

// Keys to which rows are assigned, ordered by table. All arrays are on the device.
struct NewRows {
  int tables = 0;
  const RowSource* sources = nullptr;     // [tables]
  const KeyIndexView* indexes = nullptr;  // [tables]: those of the sources
  const int64_t* begin = nullptr;  // [tables + 1]: table t has [begin[t], begin[t + 1]) of the new ones
  int64_t count = 0;               // begin[tables]
  int64_t* keys = nullptr;         // [count]: distinct in a table and absent
  int64_t* rows = nullptr;         // [count]
};

// Assigns rows to the keys new.keys, in order, inserts the keys into the indexes, and writes new.rows. Every
// directory must have reserved room; the caller counts the rows of each table (KeyDirectory::CountGiven).
Status GiveRows(cudaStream_t stream, const NewRows& new_rows);

// Collects a lookup's keys, new.keys[k] = ids.keys[which[k]]; and after GiveRows writes rows[which[k]] =
// new.rows[k].
Status CollectKeys(cudaStream_t stream, const IdsOfGroup& ids, const int32_t* which, const NewRows& new_rows);
Status SpreadRows(cudaStream_t stream, const NewRows& new_rows, const int32_t* which, int64_t* rows);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_GIVE_ROWS_H_
