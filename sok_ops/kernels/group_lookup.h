#ifndef SOK_SOK_OPS_KERNELS_GROUP_LOOKUP_H_
#define SOK_SOK_OPS_KERNELS_GROUP_LOOKUP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/engine/engine.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/state_variant.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The output `plan` of SokGroupLookup, an input of its gradient.
struct GroupLookup {
  std::unique_ptr<GroupPlan> plan;
  GroupShape shape;
};

// Reads the GroupLookup in input `index` of a kernel on `tables`. InvalidArgument if the input is something
// else, or if it belongs to another engine.
inline tensorflow::Status ReadGroupLookup(tensorflow::OpKernelContext* context, int index,
                                          const GroupTables& tables, const GroupLookup** lookup) {
  *lookup = StateIn<GroupLookup>(context->input(index));
  if (*lookup != nullptr && &(*lookup)->plan->engine() == tables.engine) return tensorflow::Status();
  return tensorflow::errors::InvalidArgument(context->op_kernel().type_string(),
                                             ": `plan` is not the plan of a SokGroupLookup in these tables");
}

// The output `plan` of SokGroupRoute, an input of SokGroupCombine and SokGroupReduce.
struct RoutedLookup {
  std::unique_ptr<RoutedGroup> group;
  int rank = 0;
  GroupShape shape;  // without outputs if this rank's inputs were wrong
};

// The output `served` of SokGroupServe, an input of SokGroupSum and SokGroupSumApplyGradients.
struct ServedLookup {
  std::unique_ptr<ServedGroup> group;
  int rank = 0;
  std::vector<int64_t> dims;  // of the tables
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_GROUP_LOOKUP_H_
