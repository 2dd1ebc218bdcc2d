// The kernel that sets the weights of keys.
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

tf::Status SetOk(tf::OpKernelContext* context) {
  tf::Tensor* status = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(0, tf::TensorShape({}), &status));
  status->scalar<tf::tstring>()() = "OK";
  return tf::Status();
}

// Keys in [n] and values in [n, dim].
tf::Status CheckShapes(const TableRef& ref, const tf::Tensor& keys, const tf::Tensor& values) {
  const int64_t dim = ref.table->options().dim;
  if (keys.dims() != 1 || values.dims() != 2 || values.dim_size(0) != keys.dim_size(0) ||
      values.dim_size(1) != dim) {
    return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' of dim ", dim, " cannot take ",
                                       "keys of shape ", keys.shape().DebugString(), " with values of shape ",
                                       values.shape().DebugString());
  }
  return tf::Status();
}

class TableAssignOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const tf::Tensor& keys = context->input(1);
    const tf::Tensor& values = context->input(2);
    OP_REQUIRES_OK(context, CheckShapes(ref, keys, values));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, ToTf(ref.table->Assign(*call, {keys.flat<int64_t>().data(), keys.NumElements()},
                                                   values.flat<float>().data())));
    OP_REQUIRES_OK(context, SetOk(context));
  }
};
REGISTER_KERNEL_BUILDER(Name("SokTableAssign").Device(tf::DEVICE_CPU), TableAssignOp);
SOK_GPU_KERNEL(TableAssignOp, "SokTableAssign", "handle", "status");

}  // namespace
}  // namespace sok
