#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/scalars.h"
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
SOK_KERNEL(NoRowsOp, "SokNoRows", "handle");

class RowsOfBranchesOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override { context->set_output(0, context->input(1)); }
  bool IsExpensive() override { return false; }
};
SOK_KERNEL(RowsOfBranchesOp, "SokRowsOfBranches", "handle");

// The kernel that raises the errors of stages.

class RaiseFailuresOp : public tf::OpKernel {
 public:
  explicit RaiseFailuresOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("stages", &stages_));
    OP_REQUIRES_OK(construction, construction->GetAttr("what", &what_));
  }

  void Compute(tf::OpKernelContext* context) override {
    for (int stage = 0; stage < stages_; ++stage) {
      const tf::Tensor& code = context->input(stage);
      const tf::Tensor& message = context->input(stages_ + stage);
      OP_REQUIRES(context, code.NumElements() == 1 && message.NumElements() == 1,
                  tf::errors::InvalidArgument("The codes and messages of stages must be scalars"));
      if (code.flat<int32_t>()(0) == 0) continue;
      const auto error_code = static_cast<decltype(tf::Status().code())>(code.flat<int32_t>()(0));
      OP_REQUIRES_OK(context, tf::Status(error_code, std::string(message.flat<tf::tstring>()(0))));
    }
    const tf::Tensor& failures = context->input(2 * stages_);
    std::string ranks;
    for (int64_t rank = 0; rank < failures.NumElements(); ++rank) {
      if (failures.flat<int32_t>()(rank) > 0) ranks += StrCat(ranks.empty() ? "" : ", ", rank);
    }
    const bool several = ranks.find(',') != std::string::npos;
    OP_REQUIRES(context, ranks.empty(),
                tf::errors::FailedPrecondition(what_, several ? ": ranks " : ": rank ", ranks,
                                               several ? " failed; their errors have the reasons"
                                                       : " failed; its error has the reason"));
    OP_REQUIRES_OK(context, OutputOk(context));
  }

 private:
  int stages_;
  std::string what_;
};
REGISTER_KERNEL_BUILDER(Name("SokRaiseFailures").Device(tf::DEVICE_CPU), RaiseFailuresOp);

}  // namespace
}  // namespace sok
