#ifndef SOK_SOK_OPS_KERNELS_LOOKUP_TENSORS_H_
#define SOK_SOK_OPS_KERNELS_LOOKUP_TENSORS_H_

#include <vector>

#include "cc/group/lookup_input.h"
#include "sok_ops/kernels/group_attributes.h"
#include "sok_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The tensors of one lookup, in the memory of the kernel's device. Tensors that the lookup does not have are
// null.
struct LookupTensors {
  const tensorflow::Tensor* ids = nullptr;
  const tensorflow::Tensor* indices = nullptr;      // sparse: [ids, 2]
  const tensorflow::Tensor* dense_shape = nullptr;  // sparse: [2], in host memory
  const tensorflow::Tensor* row_splits = nullptr;   // ragged: [bags + 1]
  const tensorflow::Tensor* places = nullptr;       // the weights' own indices or row_splits
  const tensorflow::Tensor* weights = nullptr;      // [ids]
};

// The tensors of each lookup. They are the inputs after the handles: the ids of all lookups, then the bags,
// the dense shapes and the weights.
std::vector<LookupTensors> InputTensors(tensorflow::OpKernelContext* context,
                                        const GroupAttributes& attributes);

// Checks dtypes, shapes and the number of bags. Sets *shape to the shape of the lookup's output, and *input
// to the engine's view of the tensors, valid as long as the tensors. Errors name the variable.
tensorflow::Status ReadLookupTensors(const LookupSpec& spec, const TensorSpec& tensor_spec,
                                     const LookupTensors& tensors, const TableRef& table,
                                     tensorflow::TensorShape* shape, LookupInput* input);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_LOOKUP_TENSORS_H_
