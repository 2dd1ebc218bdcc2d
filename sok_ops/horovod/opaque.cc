// An identity that TensorFlow's optimizers do not see through.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

// Horovod's own collectives are not stateful: one of a constant would be folded away, two of the same tensor
// merged, on some ranks only. What comes from a stateful op is left alone; what comes from a placeholder with
// a default is not.
REGISTER_OP("SokOpaque")
    .Input("tensor: T")
    .Attr("T: type")
    .Output("same: T")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape)
    .Doc(
        "The tensor itself, with nothing known of its value: it is neither folded nor merged with its like.");

class OpaqueOp final : public ::tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(::tensorflow::OpKernelContext* context) override { context->set_output(0, context->input(0)); }
  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(Name("SokOpaque").Device(::tensorflow::DEVICE_CPU), OpaqueOp);

}  // namespace
}  // namespace sok
