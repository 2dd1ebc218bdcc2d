#ifndef SOK_SOK_OPS_KERNELS_LOOKUP_TENSORS_H_
#define SOK_SOK_OPS_KERNELS_LOOKUP_TENSORS_H_

#include <vector>

#include "cc/group/lookup_input.h"
#include "sok_ops/kernels/group_attributes.h"
#include "sok_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The tensors of one lookup. The bag tensors and weights are null where its layout has none.
struct LookupTensors {
  const tensorflow::Tensor* ids = nullptr;
  const tensorflow::Tensor* indices = nullptr;      // sparse: [ids, 2]
  const tensorflow::Tensor* dense_shape = nullptr;  // sparse: [rank]
  const tensorflow::Tensor* row_splits = nullptr;   // ragged: [bags + 1]
  const tensorflow::Tensor* places = nullptr;       // as indices or row_splits, of the weights
  const tensorflow::Tensor* weights = nullptr;      // [ids]
};

// The inputs of a lookup after its handles, by lookup: ids of all, then bags, then weights.
std::vector<LookupTensors> InputTensors(tensorflow::OpKernelContext* context,
                                        const GroupAttributes& attributes);

// Checks dtypes, shapes and the number of bags. *shape is that of the lookup's output, *input what an engine
// is told, which lives as long as the tensors. An error names the variable.
tensorflow::Status ReadLookupTensors(const LookupSpec& spec, const TensorSpec& tensor_spec,
                                     const LookupTensors& tensors, const TableRef& table,
                                     tensorflow::TensorShape* shape, LookupInput* input);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_LOOKUP_TENSORS_H_
