// An identity that TensorFlow's optimizers do not see through.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

// Horovod's own collectives are not stateful: graph optimizers would fold one whose input is a constant and
// merge two with the same input, possibly on some ranks only. They leave the outputs of a stateful op alone,
// but not those of a placeholder with a default.
REGISTER_OP("SokOpaque")
    .Input("tensor: T")
    .Attr("T: type")
    .Output("same: T")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape)
    .Doc("Returns its input. Graph optimizers know nothing of its value, and neither fold nor merge it.");

class OpaqueOp final : public ::tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(::tensorflow::OpKernelContext* context) override { context->set_output(0, context->input(0)); }
  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(Name("SokOpaque").Device(::tensorflow::DEVICE_CPU), OpaqueOp);

}  // namespace
}  // namespace sok
