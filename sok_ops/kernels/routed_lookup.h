#ifndef SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_
#define SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/engine/engine.h"
#include "sok_ops/kernels/group_inputs.h"

namespace sok {

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

#endif  // SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_
