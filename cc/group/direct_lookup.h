#ifndef SOK_CC_GROUP_DIRECT_LOOKUP_H_
#define SOK_CC_GROUP_DIRECT_LOOKUP_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/object_pool.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/lookup_passes.h"
#include "cc/group/lookup_plan.h"
#include "cc/group/table_rows.h"
#include "cc/table/table.h"

namespace sok {

// Lookups that only read, id by id: a row is found, read and added to its bag for each occurrence of an id.
// Finding out which ids are distinct takes longer, unless most of them are repeated.

// Whether lookups of part `t` of a plan, of `ids` ids in `table`, are read so: nobody asks for the distinct
// ids later, as gradients do (those of weights also without training), no row has to be brought up to date
// first, and there are at most four ids for each row of the table.
bool CanReadDirectly(const LookupPlan& plan, int t, const Table& table, int64_t ids);

// Some ids of a lookup on their way to the output. Memory is used again for the next ones.
struct IdBlock {
  int64_t first = 0;  // bags [first, last) of the lookup; ids where nothing is pooled
  int64_t last = 0;
  std::vector<int64_t> numbers;  // of the ids' rows
  RowPointers pointers;          // to them
};

// Working memory of one thread.
struct DirectScratch {
  IdBlock blocks[2];
};

// Writes the output of a lookup without weights: the same bits as GroupForward's passes over distinct ids
// without training. `ids` are the lookup's. The table is locked by the caller. Errors as Table::Find, of the
// first id that has one; ResourceExhausted where memory does not suffice.
//
// Gives up where so many ids have no row that the initial rows of their repetitions would cost more than
// finding out which are distinct: sets *gave_up, and of the output some rows are not written. Ends soon also
// once another call, for a lookup of the same table, has set it.
Status ReadDirectly(Executor& executor, const Table& table, const Lookup& lookup, Span<const int64_t> ids,
                    const OutputRows& output, OutputStores stores, ObjectPool<DirectScratch>* scratch,
                    std::atomic<bool>* gave_up);

}  // namespace sok

#endif  // SOK_CC_GROUP_DIRECT_LOOKUP_H_
