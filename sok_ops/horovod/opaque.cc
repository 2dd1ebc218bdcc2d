// An identity that TensorFlow's optimizers do not see through.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

// Horovod's own collectives are not stateful. Graph optimizers would fold a collective whose input is a
// constant and merge two collectives with the same input, possibly on some ranks only. They do neither if the
// input comes from a stateful op. A placeholder with a default is not enough.
REGISTER_OP("SokOpaque")
    .Input("tensor: T")
    .Attr("T: type")
    .Output("same: T")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape)
    .Doc("Returns its input. Graph optimizers know nothing about its value, and neither fold nor merge it.");

class OpaqueOp final : public ::tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(::tensorflow::OpKernelContext* context) override { context->set_output(0, context->input(0)); }
  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(Name("SokOpaque").Device(::tensorflow::DEVICE_CPU), OpaqueOp);

// The types of gradients, so that these stay on the device for a Horovod built with GPU operations.
#define SOK_OPAQUE_ON_GPU(T) \
  REGISTER_KERNEL_BUILDER(Name("SokOpaque").Device(::tensorflow::DEVICE_GPU).TypeConstraint<T>("T"), OpaqueOp)
SOK_OPAQUE_ON_GPU(::Eigen::half);
SOK_OPAQUE_ON_GPU(float);
SOK_OPAQUE_ON_GPU(double);
#undef SOK_OPAQUE_ON_GPU

}  // namespace
}  // namespace sok
