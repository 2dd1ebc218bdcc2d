#ifndef SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_
#define SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_

#include <cstdint>
#include <vector>

#include "cc/group/lookup_input.h"
#include "sok_ops/kernels/output_layout.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The attributes of one lookup that its engine does not need.
struct TensorSpec {
  int64_t slots = 0;    // how many consecutive bags belong to one sample; 0: bags are not grouped by sample
  bool placed = false;  // the weights' own indices or row splits are inputs, too
  int bag_inputs = 0;   // the number of tensors of the op's input `bags` that belong to the lookup
};

// The attributes of a group lookup op.
struct GroupAttributes {
  std::vector<int64_t> dims;        // by table
  std::vector<LookupSpec> specs;    // by lookup
  std::vector<TensorSpec> tensors;  // by lookup
  OutputLayout layout;

  // The number of lookups with sparse ids.
  int num_sparse() const;

  // Reads and checks the attributes.
  tensorflow::Status Read(tensorflow::OpKernelConstruction* construction);
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_
