// Finds the rows of a group's ids.
#ifndef SOK_CUDA_TABLE_FIND_ROWS_H_
#define SOK_CUDA_TABLE_FIND_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cc/placement/key_owners.h"
#include "cuda/index/key_index_view.h"
#include "cuda/table/ids_of_group.h"

namespace sok {

// The row of a key that another rank holds.
constexpr int64_t kForeignRow = -2;

// How a table finds a key's row: in its index, or without hashing by arithmetic on the key.
struct RowFinder {
  bool is_static = false;
  KeyIndexView index;
  StaticRows static_rows;
  // Whether there may be keys that `rank` does not hold, which get kForeignRow. The boundaries are on the
  // device.
  bool may_be_foreign = false;
  KeyOwners owners;
  int rank = 0;
};

// rows[u] = the row of id u, or kAbsentRow. A key that has no row in a table without hashing is an error:
// *first_unknown becomes the minimum of its value and the number of that id. finders[ids.tables] and the
// other arrays are on the device.
Status FindRows(cudaStream_t stream, const IdsOfGroup& ids, const RowFinder* finders, int64_t* rows,
                uint64_t* first_unknown);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_FIND_ROWS_H_
