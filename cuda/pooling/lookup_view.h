// A lookup of a group as the kernels of this folder see it. All pointers are to device memory.
#ifndef SOK_CUDA_POOLING_LOOKUP_VIEW_H_
#define SOK_CUDA_POOLING_LOOKUP_VIEW_H_

#include <cstdint>

#include "cc/initializers/initializer.h"
#include "cc/lookup/lookup_input.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// The rows that a group's occurrences read: occurrence i reads the row of distinct id inverse[i]. Occurrences
// are numbered consecutively over the group.
struct OccurrenceRows {
  // [occurrences of the group]; null if each occurrence is a distinct id, with its number.
  const int32_t* inverse = nullptr;
  // For each distinct id its row number or a reference to its row (cc/table/record_layout.h); negative if it
  // has no row.
  const int64_t* rows = nullptr;
  RowStoreView table;
  // Whether four adjacent weights of every record are aligned to their size, if dim is a multiple of 4, as in
  // a table. Rows in messages may not be.
  bool records_are_aligned = true;
  // Of rows in 16 bits, whether a lookup that pools nothing writes them as they are, instead of floats: its
  // output then is an array of numbers of 16 bits.
  bool writes_halves = false;
  // What an id without a row reads: its initial row, or a constant if the table has a filter. Used only if
  // may_be_absent: a kernel that need not check for such ids is faster.
  bool may_be_absent = false;
  const int64_t* keys = nullptr;  // [occurrences of the group]
  Initializer initial;

  // Whether the rows' weights have 16 bits.
  bool in_halves() const { return table.shape.weight_type() != FloatType::kFloat32; }
};

// The bags of a lookup, whose occurrences follow one another. Bag b holds the group's occurrences [begin[b],
// begin[b + 1]).
struct BagsView {
  const int32_t* begin = nullptr;  // [bags + 1]; null if nothing is pooled: one bag for each occurrence
  const float* weights = nullptr;  // [occurrences of the group]; null means ones
  int64_t first = 0;               // the lookup's first occurrence
  int64_t bags = 0;
  Combiner combiner = Combiner::kSum;
  // Of all bags, or 0 if none of them is long (pool.h); used for outputs only.
  int32_t occurrences = 0;

  bool pooled() const { return begin != nullptr; }
};

}  // namespace sok

#endif  // SOK_CUDA_POOLING_LOOKUP_VIEW_H_
