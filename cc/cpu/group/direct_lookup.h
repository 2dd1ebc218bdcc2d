#ifndef SOK_CC_CPU_GROUP_DIRECT_LOOKUP_H_
#define SOK_CC_CPU_GROUP_DIRECT_LOOKUP_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/object_pool.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/table/table.h"

namespace sok {

// Read-only lookups id by id: each occurrence of an id is found, read and added to its bag. That is faster
// than merging duplicates unless most ids are repeated.

// Whether the lookups of part `t` of a plan, with `ids` ids in `table`, are read directly: distinct ids are
// not needed later, as they are for gradients (for those of weights even without training), no row has to be
// brought up to date first, and there are at most four ids per row of the table.
bool CanReadDirectly(const LookupPlan& plan, int t, const Table& table, int64_t ids);

// A block of a lookup's ids in flight. Its memory is reused for later blocks.
struct IdBlock {
  int64_t first = 0;  // bags [first, last) of the lookup; ids if it is not pooled
  int64_t last = 0;
  std::vector<int64_t> numbers;  // of the ids' rows
  RowPointers pointers;          // to them
};

// Working memory of one thread.
struct DirectScratch {
  IdBlock blocks[2];
};

// Writes the output of a lookup without weights: the same bits as GroupForward's passes over distinct ids
// without training. `ids` are the lookup's. The caller has locked the table. Errors are as for Table::Find,
// for the first id that has one; ResourceExhausted if memory runs out.
//
// Gives up if so many ids have no row that computing their initial rows repeatedly would cost more than
// merging duplicates: sets *gave_up, and leaves some output rows unwritten. Also ends early once another
// call, for a lookup of the same table, has set it.
Status ReadDirectly(Executor& executor, const Table& table, const LookupBags& lookup, Span<const int64_t> ids,
                    const OutputRows& output, OutputStores stores, ObjectPool<DirectScratch>* scratch,
                    std::atomic<bool>* gave_up);

}  // namespace sok

#endif  // SOK_CC_CPU_GROUP_DIRECT_LOOKUP_H_
