#ifndef SOK_SOK_OPS_KERNELS_VARIABLE_MEMORY_H_
#define SOK_SOK_OPS_KERNELS_VARIABLE_MEMORY_H_

#include <cstring>

#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"

namespace sok {

// Gives a numeric variable its own memory if something else, such as a read or a constant, shares it, so that
// a kernel may change it in place. The caller holds the variable's lock for writing.
inline tensorflow::Status OwnMemory(tensorflow::OpKernelContext* context, tensorflow::Var* variable) {
  tensorflow::Tensor* shared = variable->tensor();
  if (shared->NumElements() == 0 || HasMemoryAlone(*shared)) return tensorflow::Status();
  tensorflow::Tensor own;
  TF_RETURN_IF_ERROR(context->allocate_temp(shared->dtype(), shared->shape(), &own));
  const auto bytes = shared->tensor_data();
  std::memcpy(const_cast<char*>(own.tensor_data().data()), bytes.data(), bytes.size());
  *shared = own;
  return tensorflow::Status();
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_VARIABLE_MEMORY_H_
