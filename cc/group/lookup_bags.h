// Builds the bags of a plan from the ids, indices and weights of a step.
#ifndef SOK_CC_GROUP_LOOKUP_BAGS_H_
#define SOK_CC_GROUP_LOOKUP_BAGS_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/group/lookup_input.h"
#include "cc/group/lookup_plan.h"
#include "cc/table/table.h"

namespace sok {

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

}  // namespace sok

#endif  // SOK_CC_GROUP_LOOKUP_BAGS_H_
