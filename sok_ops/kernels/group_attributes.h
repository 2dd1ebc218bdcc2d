#ifndef SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_
#define SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_

#include <cstdint>
#include <vector>

#include "cc/group/lookup_input.h"
#include "sok_ops/kernels/output_layout.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// What the attributes of an op say about one of its lookups, beside what its engine is told.
struct TensorSpec {
  int64_t slots = 0;    // how many consecutive bags belong to one sample; 0: each is one
  bool placed = false;  // the weights' own indices or row splits are inputs, too
  // How many of the op's inputs `bags` are the lookup's.
  int bag_inputs = 0;
};

// The attributes of an op that looks a group up.
struct GroupAttributes {
  std::vector<int64_t> dims;        // by table
  std::vector<LookupSpec> specs;    // by lookup
  std::vector<TensorSpec> tensors;  // by lookup
  OutputLayout layout;

  // Reads and checks the attributes.
  tensorflow::Status Read(tensorflow::OpKernelConstruction* construction);
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_GROUP_ATTRIBUTES_H_
