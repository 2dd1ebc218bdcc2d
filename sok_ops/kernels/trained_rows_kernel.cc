// The kernel that tells how many rows a lookup trains.
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/group_lookup.h"
#include "sok_ops/kernels/routed_lookup.h"
#include "sok_ops/kernels/state_variant.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class TrainedRowsOp : public tf::OpKernel {
 public:
  explicit TrainedRowsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("table", &table_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const TrainedGroup* group = nullptr;
    size_t tables = 0;
    if (const auto* lookup = StateIn<GroupLookup>(context->input(0))) {
      group = lookup->plan.get();
      tables = lookup->shape.attributes->dims.size();
    } else if (const auto* served = StateIn<ServedLookup>(context->input(0))) {
      group = served->group.get();
      tables = served->dims.size();
    }
    OP_REQUIRES(
        context, group != nullptr && static_cast<size_t>(table_) < tables,
        tf::errors::InvalidArgument("SokTrainedRows: `lookup` is not a lookup's output for its gradient, "
                                    "or its group has no table ",
                                    table_));
    tf::Tensor* rows = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({}), &rows));
    rows->scalar<int64_t>()() = group->trained_rows(table_);
  }

 private:
  int table_;
};
REGISTER_KERNEL_BUILDER(Name("SokTrainedRows").Device(tf::DEVICE_CPU), TrainedRowsOp);
SOK_GPU_KERNEL(TrainedRowsOp, "SokTrainedRows", "lookup", "rows");

}  // namespace
}  // namespace sok
