#ifndef SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_
#define SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_

#include <vector>

#include "cc/sharded/plans.h"
#include "sok_ops/kernels/output_layout.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace sok {

// What SokGroupRoute leaves for the later kernels of its group.
struct RoutedLookup {
  RoutePlan plan;
  OutputLayout layout;
  std::vector<tensorflow::TensorShape> output_shapes;  // one per output
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_ROUTED_LOOKUP_H_
