// References of a lookup to its rows, for its backward pass: cc/table/row_reference.h.
#ifndef SOK_CUDA_TABLE_REFERENCES_H_
#define SOK_CUDA_TABLE_REFERENCES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/status.h"
#include "cuda/table/ids_of_group.h"
#include "cuda/table/key_directory.h"

namespace sok {

// Turns the rows of a group's ids into references; kAbsentRow stays. `states`, on the device, has the states
// of each table's rows; null for a table whose references are row numbers.
Status MakeReferences(cudaStream_t stream, const IdsOfGroup& ids, const uint32_t* const* states,
                      int64_t* rows);

// The rows of references to one table.
struct ReferencedRows {
  const int64_t* references = nullptr;  // [n]
  int64_t n = 0;
  int64_t row_limit = 0;
  const uint32_t* states = nullptr;  // null if no row was ever freed: references are then row numbers
  int64_t* rows = nullptr;           // [n]: kAbsentRow for a row that was freed since. May be null
  // Becomes the minimum of its value and the first position whose row the table never had. kAbsentRow counts
  // as such a row unless `may_be_absent`.
  uint64_t* first_unknown = nullptr;
  // Likewise for the first position whose row was freed since. May be null.
  uint64_t* first_stale = nullptr;
  bool may_be_absent = false;
};
Status ResolveReferences(cudaStream_t stream, const ReferencedRows& referenced);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_REFERENCES_H_
