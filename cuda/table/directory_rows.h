// Assigns rows to ids that have none, for all tables of a group at once.
#ifndef SOK_CUDA_TABLE_DIRECTORY_ROWS_H_
#define SOK_CUDA_TABLE_DIRECTORY_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
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
// The row for the `i`-th new key.
SOK_HOST_DEVICE int64_t RowToGive(const RowSource& source, int64_t i) {
  return i < source.num_free ? source.directory.free_rows[source.num_free - 1 - i]
                             : source.row_limit + i - source.num_free;
}
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

// Erases rows of one table.

// distinct[*count] = the distinct values of rows[n], sorted, without kAbsentRow. Rows are below `row_limit`.
// Arrays are on the device and have n elements; n < 2^31. ResourceExhausted if `scratch` runs out of memory;
// it takes about 16 bytes per row.
Status SortDistinctRows(cudaStream_t stream, DeviceAllocator* scratch, const int64_t* rows, int64_t n,
                        int64_t row_limit, int64_t* distinct, int64_t* count);

// Frees rows[n], which are distinct and in use, in their order, and writes the keys that they had to keys[n].
// The directory must have reserved room for them; the caller counts them (KeyDirectory::CountErased). Does
// not change `rows`.
Status EraseRows(cudaStream_t stream, const KeyDirectory& directory, int64_t* rows, int64_t n, int64_t* keys);

// References of a lookup to its rows, for its backward pass: cc/table/record_layout.h.

// Turns the rows of a group's ids into references; kAbsentRow stays. `states`, on the device, has the states
// of each table's rows; null for a table whose references are row numbers.
Status MakeReferences(cudaStream_t stream, const IdsOfGroup& ids, const ColumnView<uint32_t>* states,
                      int64_t* rows);

// The rows of references to one table.
struct ReferencedRows {
  const int64_t* references = nullptr;  // [n]
  int64_t n = 0;
  int64_t row_limit = 0;
  ColumnView<uint32_t> states;  // null if no row was ever freed: references are then row numbers
  int64_t* rows = nullptr;      // [n]: kAbsentRow for a row that was freed since. May be null
  // Becomes the minimum of its value and the first position whose row the table never had. kAbsentRow counts
  // as such a row unless `may_be_absent`.
  uint64_t* first_unknown = nullptr;
  // Likewise for the first position whose row was freed since. May be null.
  uint64_t* first_stale = nullptr;
  bool may_be_absent = false;
};
Status ResolveReferences(cudaStream_t stream, const ReferencedRows& referenced);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_DIRECTORY_ROWS_H_
