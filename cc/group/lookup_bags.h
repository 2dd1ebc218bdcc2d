// From the ids, indices and weights of a step to the bags that a plan describes.
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

// The ids of each table of a group, as GroupForward takes them: the input's own where one lookup brings them
// as int64 in the order of its bags, else a copy. Memory is used again for the next step.
struct GroupIds {
  std::vector<Span<const int64_t>> views;    // valid as long as the inputs
  std::vector<std::vector<int64_t>> copies;  // for the views that need one
};

// Fills in the lookups of `plan`, whatever it held, and `ids`. inputs[l] belongs to specs[l]; its sizes are
// right, and its values are checked here: InvalidArgument, which names the variable, of the first lookup that
// has an error. `tables` are used for their names alone, and are not locked. A pooled lookup whose bags have
// one id each, in order, without weights, is not pooled in the plan unless it keeps its bags.
// ResourceExhausted where memory does not suffice.
Status BuildBags(Executor& executor, Span<Table* const> tables, Span<const LookupSpec> specs,
                 Span<const LookupInput> inputs, LookupPlan* plan, GroupIds* ids);

}  // namespace sok

#endif  // SOK_CC_GROUP_LOOKUP_BAGS_H_
