// The kernel that trains a table's rows.
#include <string>

#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class ApplyGradientsOp : public tf::OpKernel {
 public:
  explicit ApplyGradientsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("optimizer", &optimizer_));
    OP_REQUIRES_OK(construction, construction->GetAttr("indices_unique", &indices_unique_));
  }

  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const tf::Tensor& indices = context->input(1);
    const tf::Tensor& values = context->input(2);
    const tf::Tensor& hyper = context->input(3);
    const int64_t dim = ref.table->options().dim;
    OP_REQUIRES(
        context, indices.dims() == 1 && values.dims() == 2 && hyper.dims() == 1,
        tf::errors::InvalidArgument("Embedding variable '", ref.name(),
                                    "': gradients have indices, values and hyper-parameters of shapes ",
                                    indices.shape().DebugString(), ", ", values.shape().DebugString(),
                                    " and ", hyper.shape().DebugString(), ", not [n], [n, dim] and [h]"));
    OP_REQUIRES(context, values.dim_size(0) == indices.dim_size(0) && values.dim_size(1) == dim,
                tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' of dim ", dim,
                                            ": gradients of shape ", values.shape().DebugString(), " for ",
                                            indices.dim_size(0), " rows"));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, ToTf(ref.table->ApplyGradients(
                                *call, optimizer_, {hyper.flat<float>().data(), hyper.NumElements()},
                                {indices.flat<int64_t>().data(), indices.NumElements()},
                                values.flat<float>().data(), indices_unique_)));
  }

 private:
  std::string optimizer_;
  bool indices_unique_;
};
REGISTER_KERNEL_BUILDER(Name("SokApplyGradients").Device(tf::DEVICE_CPU), ApplyGradientsOp);
SOK_GPU_KERNEL(ApplyGradientsOp, "SokApplyGradients", "handle", "hyper");

}  // namespace
}  // namespace sok
