// Helpers for kernels that all ranks run in stages: a stage outputs its error, so that all ranks learn of it.
#ifndef SOK_SOK_OPS_KERNELS_STAGE_H_
#define SOK_SOK_OPS_KERNELS_STAGE_H_

#include <cstdint>

#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// Writes `status` to the kernel's outputs `code` (its first) and `message` (its second).
inline tensorflow::Status ReportStage(tensorflow::OpKernelContext* context,
                                      const tensorflow::Status& status) {
  tensorflow::Tensor* code = nullptr;
  tensorflow::Tensor* message = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, tensorflow::TensorShape({}), &code));
  TF_RETURN_IF_ERROR(context->allocate_output(1, tensorflow::TensorShape({}), &message));
  code->scalar<int32_t>()() = static_cast<int32_t>(status.code());
  message->scalar<tensorflow::tstring>()() = MessageOf(status);
  return tensorflow::Status();
}

// Reads the scalar in input `index`. The error calls it `what`.
template <typename T>
tensorflow::Status ScalarInput(tensorflow::OpKernelContext* context, int index, const char* what, T* value) {
  const tensorflow::Tensor& tensor = context->input(index);
  if (tensor.NumElements() != 1) {
    return tensorflow::errors::InvalidArgument("`", what, "` has shape ", tensor.shape().DebugString(),
                                               ", not []");
  }
  *value = T(tensor.flat<T>()(0));
  return tensorflow::Status();
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_STAGE_H_
