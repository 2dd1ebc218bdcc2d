// The kernel that sets rows.
#include <vector>

#include "cc/dedup/dedup.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_executor.h"
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

// Keys in [n] and values in [n, dim], no key twice.
tf::Status CheckRows(tf::OpKernelContext* context, const TableRef& ref, const tf::Tensor& keys,
                     const tf::Tensor& values) {
  const int64_t dim = ref.table->options().dim;
  if (keys.dims() != 1 || values.dims() != 2 || values.dim_size(0) != keys.dim_size(0) ||
      values.dim_size(1) != dim) {
    return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' of dim ", dim, " cannot take ",
                                       "keys of shape ", keys.shape().DebugString(), " with values of shape ",
                                       values.shape().DebugString());
  }
  TfExecutor executor(context);
  Deduplicator deduplicator;
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse(keys.NumElements());
  const Span<const int64_t> ids(keys.flat<int64_t>().data(), keys.NumElements());
  TF_RETURN_IF_ERROR(ToTf(deduplicator.Run(executor, ids, &unique, Span<int32_t>(inverse))));
  for (int64_t i = 0, seen = 0; i < ids.size(); ++i) {
    if (inverse[i] == seen) {
      ++seen;
    } else {
      return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "': key ", ids[i],
                                         " stands twice among the keys to set");
    }
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
    OP_REQUIRES_OK(context, CheckRows(context, ref, keys, values));
    TfExecutor executor(context);
    {
      const std::lock_guard<std::mutex> lock(ref.table->mutex());
      OP_REQUIRES_OK(context,
                     ToTf(ref.table->Assign(executor, {keys.flat<int64_t>().data(), keys.NumElements()},
                                            values.flat<float>().data())));
    }
    OP_REQUIRES_OK(context, SetOk(context));
  }
};
REGISTER_KERNEL_BUILDER(Name("SokTableAssign").Device(tf::DEVICE_CPU), TableAssignOp);

}  // namespace
}  // namespace sok
