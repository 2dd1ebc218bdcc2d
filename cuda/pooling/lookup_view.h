// A lookup of a group as the kernels of this folder see it. All pointers are to memory of the device.
#ifndef SOK_CUDA_POOLING_LOOKUP_VIEW_H_
#define SOK_CUDA_POOLING_LOOKUP_VIEW_H_

#include <cstdint>

#include "cc/initializers/initializer.h"
#include "cc/pooling/combiner.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// The rows that a group's occurrences read: occurrence i that of distinct id u = inverse[i]. Occurrences are
// numbered through the group.
struct OccurrenceRows {
  const int32_t* inverse = nullptr;  // [occurrences of the group]
  // For each distinct id the number of its row or a reference to it (cc/table/row_reference.h), below 0 where
  // it has none.
  const int64_t* rows = nullptr;
  RowStoreView table;
  // Whether every record begins at a multiple of 16 bytes, as in a table. Rows in messages need not.
  bool records_are_aligned = true;
  // What an id without a row reads: its initial row, or a constant where the table has admission. Read only
  // if there may be such ids; a kernel that needs not ask for them is faster.
  bool may_be_absent = false;
  const int64_t* keys = nullptr;  // [occurrences of the group]
  Initializer initial;
};

// The bags of a lookup, whose occurrences follow one another. Bag b holds the group's occurrences [begin[b],
// begin[b + 1]).
struct BagsView {
  const int32_t* begin = nullptr;  // [bags + 1]; null where nothing is pooled: one bag for each occurrence
  const float* weights = nullptr;  // [occurrences of the group]; null means ones
  int64_t first = 0;               // occurrence of the lookup
  int64_t bags = 0;
  Combiner combiner = Combiner::kSum;
  int32_t occurrences = 0;  // of all bags; outputs need it

  bool pooled() const { return begin != nullptr; }
};

}  // namespace sok

#endif  // SOK_CUDA_POOLING_LOOKUP_VIEW_H_
