#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class NoRowsOp : public tf::OpKernel {
 public:
  explicit NoRowsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dim", &dim_));
  }
  void Compute(tf::OpKernelContext* context) override {
    tf::Tensor* rows = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({0, dim_}), &rows));
  }
  bool IsExpensive() override { return false; }

 private:
  int64_t dim_ = 0;
};
REGISTER_KERNEL_BUILDER(Name("SokNoRows").Device(tf::DEVICE_CPU), NoRowsOp);
SOK_GPU_KERNEL(NoRowsOp, "SokNoRows", "handle");

class RowsOfBranchesOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override { context->set_output(0, context->input(1)); }
  bool IsExpensive() override { return false; }
};
REGISTER_KERNEL_BUILDER(Name("SokRowsOfBranches").Device(tf::DEVICE_CPU), RowsOfBranchesOp);
SOK_GPU_KERNEL(RowsOfBranchesOp, "SokRowsOfBranches", "handle");

}  // namespace
}  // namespace sok
