#ifndef SOK_SOK_OPS_KERNELS_PACKED_BATCH_H_
#define SOK_SOK_OPS_KERNELS_PACKED_BATCH_H_

#include <vector>

#include "sok_ops/kernels/group_attributes.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace sok {

// Copies the batch of a SokPackBatch, in input `index` of a kernel on a GPU, to the device, for later work of
// the device's stream. Sets `tensors` to views of it: those of the packed lookups, in the order of
// SokPackBatch's inputs without dense shapes. Returns the error that the batch holds, if any; InvalidArgument
// if it is not a batch of these lookups.
tensorflow::Status UnpackBatch(tensorflow::OpKernelContext* context, int index,
                               const GroupAttributes& attributes, std::vector<tensorflow::Tensor>* tensors);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_PACKED_BATCH_H_
