#ifndef SOK_CC_CPU_DEDUP_DEDUP_H_
#define SOK_CC_CPU_DEDUP_DEDUP_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/huge_pages.h"
#include "cc/base/object_pool.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/dedup/probe_table.h"

namespace sok {

// Finds the distinct ids of a batch, as tf.unique does.
//
// Keeps its working memory from one Run to the next, so reuse one Deduplicator for successive batches: the
// memory is then in the cache. Not thread-safe; Run itself uses the executor's threads.
class Deduplicator {
 public:
  // *unique = the distinct ids in order of their first occurrence; inverse[i] = the position of ids[i] in
  // *unique; inverse.size() == ids.size(). The same for every executor. InvalidArgument for more than 2^31 -
  // 1 ids; ResourceExhausted if memory runs out, and then the outputs must not be used.
  //
  // The size of *unique before the call is taken as a guess of the number of distinct ids: pass the vector of
  // the last batch. A bad guess costs only time.
  Status Run(Executor& executor, Span<const int64_t> ids, std::vector<int64_t>* unique,
             Span<int32_t> inverse);

 private:
  // All ids in order, through one table.
  Status RunWhole(Span<const int64_t> ids, std::vector<int64_t>* unique, Span<int32_t> inverse);
  // Ids partitioned by hash, the partitions in parallel.
  Status RunPartitioned(Executor& executor, Span<const int64_t> ids, std::vector<int64_t>* unique,
                        Span<int32_t> inverse);
  Status ScatterByHash(Executor& executor, Span<const int64_t> ids);
  Status FindFirstOccurrences(Executor& executor, Span<int32_t> first);

  // Partitioned: the batch ordered by partition, each in the batch's order. Otherwise: the distinct ids.
  PageBuffer scratch_ids_;        // int64
  PageBuffer scratch_positions_;  // int32: where in the batch
  int partition_bits_ = 0;
  std::vector<int64_t> partition_begin_;  // partitions + 1

  ObjectPool<ProbeTable> tables_;
};

// The occurrences of each distinct id of a batch: those of distinct id u are
// positions[offsets[u] .. offsets[u + 1]), in increasing order. offsets has one entry more than there are
// distinct ids.
struct Segments {
  std::vector<int64_t> offsets;
  std::vector<int32_t> positions;
};

// Inverts Deduplicator's `inverse`, which has at most 2^31 - 1 values in [0, num_unique). Linear time; reuses
// the memory of `segments`. Stable: equal ids keep their order.
void BuildSegments(Span<const int32_t> inverse, int64_t num_unique, Segments* segments);

}  // namespace sok

#endif  // SOK_CC_CPU_DEDUP_DEDUP_H_
