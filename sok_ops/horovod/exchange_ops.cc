// Ops that exchange words between Horovod's ranks and count them.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Stateful, so that graph optimizers do not fold, merge or prune an exchange that other ranks wait for.
REGISTER_OP("SokExchange")
    .Input("words: int64")
    .Input("splits: int32")
    .Attr("exchange_name: string")
    .Output("received: int64")
    .Output("received_splits: int32")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle words, splits;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &words));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &splits));
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, splits);
      return ::tensorflow::Status();
    })
    .Doc(R"(Sends words to every rank and receives what the ranks send to this one, over Horovod.
words: [w] the words for rank 0, then those for rank 1, and so on; words beyond the splits' sum are not sent.
splits: [ranks] how many words go to each rank.
exchange_name: the same on all ranks; every rank must run an exchange of this name.
received: the words from rank 0, then those from rank 1, and so on.
received_splits: [ranks] how many words came from each rank.)");

REGISTER_OP("SokExchangeStatistics")
    .Output("statistics: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Vector(5));
      return ::tensorflow::Status();
    })
    .Doc(R"(What this process has exchanged since it started.
statistics: [5] exchanges, bytes sent, bytes received, bytes sent to other ranks, bytes received from other
  ranks.)");

// An identity that TensorFlow's optimizers do not see through.

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
