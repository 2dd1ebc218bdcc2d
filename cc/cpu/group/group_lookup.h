#ifndef SOK_CC_CPU_GROUP_GROUP_LOOKUP_H_
#define SOK_CC_CPU_GROUP_GROUP_LOOKUP_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/object_pool.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/group/direct_lookup.h"
#include "cc/cpu/group/group_training.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/table/table.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// Builds the bags of a plan from the ids, indices and weights of a step.

// The ids of each table of a group, as GroupForward takes them: the input's own array if one lookup provides
// them as int64 in the order of its bags, otherwise a copy. The memory is reused for the next step.
struct GroupIds {
  std::vector<Span<const int64_t>> views;    // valid as long as the inputs
  std::vector<std::vector<int64_t>> copies;  // for the views that need one
};

// Overwrites the lookups of `plan`, and `ids`. inputs[l] belongs to specs[l]. The caller has checked sizes;
// values are checked here: InvalidArgument for the first lookup with an error, which names the variable. Uses
// only the names of `tables`, and does not lock them. A pooled lookup whose bags have one id each, in order,
// without weights, is not pooled in the plan unless it keeps its bags. ResourceExhausted if memory runs out.
Status BuildBags(Executor& executor, Span<Table* const> tables, Span<const LookupSpec> specs,
                 Span<const LookupInput> inputs, LookupPlan* plan, GroupIds* ids);

// Working memory of a lookup; one call at a time. Later calls reuse the allocations of the first.
struct GroupScratch {
  ObjectPool<Deduplicator> deduplicators;  // one for each thread
  ObjectPool<RowPointers> pointers;        // one for each thread
  ObjectPool<DirectScratch> direct;        // one for each thread
};

// Looks up a whole group: merges duplicate ids per table, finds their rows (in training inserts new ones),
// and writes the output of every lookup. Reads plan->lookups and fills in plan->parts: part t belongs to
// tables[t], which are distinct, and to ids[t], the concatenated ids of the table's lookups, each in the
// order of its bags. outputs[l] belongs to plan->lookups[l]. Without training, tables whose distinct ids are
// not needed are read id by id, unless too many ids have no row, and their parts stay empty: see
// CanReadDirectly and ReadDirectly.
//
// Locks the tables in one global order, so that groups that share tables cannot deadlock. After an error the
// outputs must not be used. In training, some tables may then have new rows, and may have evicted rows for
// them; all other rows are unchanged.
Status GroupForward(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                    LookupPlan* plan, Span<const OutputRows> outputs, GroupScratch* scratch);

// GroupForward in two calls, for callers whose ids arrive before the tables are in the state that the lookup
// must see. Together they do the same, whatever happens to the tables between them.
//
// MergeGroup merges duplicate ids per table. It reads plan->lookups and fills in those fields of plan->parts
// that need no table. Of the tables it uses the names, and asks their disks for the rows: Table::AskAhead.
Status MergeGroup(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                  LookupPlan* plan, GroupScratch* scratch);
// ReadGroup does the rest, once for each plan that MergeGroup filled in.
Status ReadGroup(Executor& executor, Span<Table* const> tables, LookupPlan* plan,
                 Span<const OutputRows> outputs, GroupScratch* scratch);

// The gradients of all trained ids of a group: row u < plan.parts[t].trained of grads_out[t] is the sum over
// the occurrences of id plan.parts[t].unique[u], in order, of their shares of their bags' gradients. Table t
// has rows of dims[t] floats; gradients[l] belongs to plan.lookups[l]. A null grads_out[t] skips table t. The
// result does not depend on the executor. `plan` comes from GroupForward in training. ResourceExhausted if
// memory runs out.
Status GroupBackward(Executor& executor, const LookupPlan& plan, Span<const int64_t> dims,
                     Span<const GradientRows> gradients, Span<float* const> grads_out,
                     GradientScratch* scratch);

// The gradient of the weights of lookup `l`, in the order of the caller's ids: weight_grads[given]. Reads the
// current rows, so it must run before the optimizer. InvalidArgument if the table never had the plan's rows
// because it was replaced since the lookup. FailedPrecondition if a row was evicted since.
Status WeightBackward(Executor& executor, Table* table, const LookupPlan& plan, int l,
                      const GradientRows& gradient, Span<float> weight_grads);

}  // namespace sok

#endif  // SOK_CC_CPU_GROUP_GROUP_LOOKUP_H_
