#ifndef SOK_CC_DENSE_TABLES_MERGE_IDS_H_
#define SOK_CC_DENSE_TABLES_MERGE_IDS_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/dense_tables/row_dedup.h"

namespace sok {

// The ids of one input. Id i belongs to feature i % sizes.size(), and must be in [0, the feature's size). The
// rows of a feature follow those of the features before it.
struct InputIds {
  Span<const int64_t> ids;
  Span<const int64_t> sizes;  // at least one, at least 1 each
  int64_t base = 0;           // the key of the first feature's id 0
};

// Writes the key of each id to `keys`, which is as long as the ids; an id out of its feature gets any key.
// Returns whether all ids are in their features. If not, *worst becomes the one farthest out: the lowest if
// one is negative, else the highest of those that are too large.
bool MakeKeys(const InputIds& input, Span<int64_t> keys, int64_t* worst);

// One more than the largest key of a good id of such an input; 2^63 - 1 if that overflows.
int64_t KeysEnd(Span<const int64_t> sizes, int64_t base);

// Working memory, kept from one call to the next. Not thread-safe.
struct MergeIdsScratch {
  RowDeduplicator deduplicator;
  std::vector<int64_t> keys;
};

// *distinct = the distinct values of scratch->keys, in order of their first occurrence; places[i] = the
// position of key i among them. `places` is as long as the keys. Keys of good ids are in [0, limit). Errors
// are those of Deduplicator::Run.
Status MergeKeys(Executor& executor, MergeIdsScratch* scratch, int64_t limit, std::vector<int64_t>* distinct,
                 Span<int32_t> places);

}  // namespace sok

#endif  // SOK_CC_DENSE_TABLES_MERGE_IDS_H_
