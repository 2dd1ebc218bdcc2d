#ifndef SOK_CC_GROUP_GROUP_LOOKUP_H_
#define SOK_CC_GROUP_GROUP_LOOKUP_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/object_pool.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/dedup/dedup.h"
#include "cc/group/direct_lookup.h"
#include "cc/group/lookup_passes.h"
#include "cc/group/lookup_plan.h"
#include "cc/group/part_gradients.h"
#include "cc/group/table_rows.h"
#include "cc/table/table.h"

namespace sok {

// Working memory of GroupForward; one call at a time. Calls after the first find it as large as they need it.
struct GroupScratch {
  ObjectPool<Deduplicator> deduplicators;  // one for each thread
  ObjectPool<RowPointers> pointers;        // as well
  ObjectPool<DirectScratch> direct;        // as well
};

// Looks up a whole group: merges duplicate ids per table, finds their rows (and in training inserts those
// that are new), and writes every lookup's output. Takes the lookups of `plan`, and fills in its parts: part
// t belongs to tables[t], which are distinct, and to ids[t], the ids of the table's lookups one after the
// other, each lookup's in the order of its bags. outputs[l] belongs to plan->lookups[l]. Without training,
// tables whose distinct ids nobody needs are read id by id, unless too many ids have no row, and their parts
// stay empty: see CanReadDirectly and ReadDirectly.
//
// Locks the tables it works on, in one global order, so that groups that share tables cannot deadlock. On an
// error no output is to be used; rows that were in the tables are as they were.
Status GroupForward(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                    LookupPlan* plan, Span<const OutputRows> outputs, GroupScratch* scratch);

// GroupForward in two calls, for who has the ids before the rows are as the lookup is to find them. Together
// they do what it does, whatever happens to the tables in between.
//
// The first merges duplicate ids per table: takes the lookups of `plan`, and of its parts fills in what no
// table is needed for.
Status MergeGroup(Executor& executor, Span<const Span<const int64_t>> ids, LookupPlan* plan,
                  GroupScratch* scratch);
// The second does the rest, with a plan that MergeGroup has filled in and that was not read before.
Status ReadGroup(Executor& executor, Span<Table* const> tables, LookupPlan* plan,
                 Span<const OutputRows> outputs, GroupScratch* scratch);

// The gradients of all trained ids of a group: in grads_out[t], row u < plan.parts[t].trained is the sum over
// the occurrences of id plan.parts[t].unique[u], in order, of each one's share of its bag's gradient. Table t
// has rows of dims[t] floats; gradients[l] belongs to plan.lookups[l]. Where grads_out[t] is null, those of
// table t are not wanted. The result does not depend on the executor. `plan` comes from GroupForward and was
// training. ResourceExhausted where memory does not suffice.
Status GroupBackward(Executor& executor, const LookupPlan& plan, Span<const int64_t> dims,
                     Span<const GradientRows> gradients, Span<float* const> grads_out,
                     GradientScratch* scratch);

// The gradient of the weights of lookup `l`, in the order of the caller's ids: weight_grads[given]. Reads the
// rows as they are now, so it has to run before the optimizer does. InvalidArgument where the table never had
// the plan's rows: it is another, or was made anew since the lookup. FailedPrecondition where one was evicted
// since.
Status WeightBackward(Executor& executor, Table* table, const LookupPlan& plan, int l,
                      const GradientRows& gradient, Span<float> weight_grads);

}  // namespace sok

#endif  // SOK_CC_GROUP_GROUP_LOOKUP_H_
