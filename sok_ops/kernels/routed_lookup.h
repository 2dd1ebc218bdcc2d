#ifndef SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_
#define SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/engine/engine.h"
#include "sok_ops/kernels/group_inputs.h"

namespace sok {

// What SokGroupRoute leaves for the later kernels of its group.
struct RoutedLookup {
  std::unique_ptr<RoutedGroup> group;
  int rank = 0;
  GroupShape shape;  // without outputs where this rank's inputs were wrong
};

// What SokGroupServe leaves for the kernels that sum gradients.
struct ServedLookup {
  std::unique_ptr<ServedGroup> group;
  int rank = 0;
  std::vector<int64_t> dims;  // of the tables
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_
