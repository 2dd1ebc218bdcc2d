// The initial contents of new rows.
#ifndef SOK_CUDA_STORE_NEW_ROWS_H_
#define SOK_CUDA_STORE_NEW_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cc/initializers/initializer.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// New rows of all tables of a group, ordered by table. Pointers are to device memory.
struct GroupRows {
  int tables = 0;
  const RowStoreView* stores = nullptr;       // [tables]
  const Initializer* initializers = nullptr;  // [tables]
  const int64_t* begin = nullptr;  // [tables + 1]: table t has [begin[t], begin[t + 1]); begin[0] is 0
  int64_t max_rows = 0;            // an estimate of begin[tables], which the host need not know
  int64_t max_width = 0;           // an estimate of the widest record, in floats
  const int64_t* keys = nullptr;
  const int64_t* rows = nullptr;
  // If not null, number i is the row rows[which[i]] of keys[which[i]].
  const int32_t* which = nullptr;
};

// Gives the record of rows[i] the initial weights of keys[i], as FillRow does on the CPU, and fills its
// slots. Rows are distinct; negative ones are skipped. One kernel; Internal if it cannot be launched.
Status StartRows(cudaStream_t stream, const GroupRows& rows);

// The same for n rows of one table.
Status StartRows(cudaStream_t stream, const RowStoreView& store, const Initializer& initializer,
                 const int64_t* keys, const int64_t* rows, int64_t n);

}  // namespace sok

#endif  // SOK_CUDA_STORE_NEW_ROWS_H_
