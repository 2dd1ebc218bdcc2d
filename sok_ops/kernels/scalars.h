// Scalars that kernels read and write, such as the error of a stage.
#ifndef SOK_SOK_OPS_KERNELS_SCALARS_H_
#define SOK_SOK_OPS_KERNELS_SCALARS_H_

#include <cstdint>
#include <utility>

#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

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

// Makes output `index` a scalar. T is the type of the tensor.
template <typename T>
tensorflow::Status OutputScalar(tensorflow::OpKernelContext* context, int index, T value) {
  tensorflow::Tensor* tensor = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(index, tensorflow::TensorShape({}), &tensor));
  tensor->scalar<T>()() = std::move(value);
  return tensorflow::Status();
}

// What the output `status` of an op says that has not failed.
inline tensorflow::Status OutputOk(tensorflow::OpKernelContext* context) {
  return OutputScalar<tensorflow::tstring>(context, 0, "OK");
}

// Writes `status` to the kernel's outputs `code` (its first) and `message` (its second), for kernels that all
// ranks run in stages: a stage outputs its error, so that all ranks learn of it.
inline tensorflow::Status ReportStage(tensorflow::OpKernelContext* context,
                                      const tensorflow::Status& status) {
  TF_RETURN_IF_ERROR(OutputScalar(context, 0, static_cast<int32_t>(status.code())));
  return OutputScalar<tensorflow::tstring>(context, 1, MessageOf(status));
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_SCALARS_H_
