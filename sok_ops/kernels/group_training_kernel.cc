// The kernel that trains the rows of a group's tables with the gradients of the group's outputs.
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/group/group_training.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/table_steps.h"
#include "sok_ops/kernels/tf_executor.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class GroupLookupApplyGradientsOp : public tf::OpKernel {
 public:
  explicit GroupLookupApplyGradientsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_outputs", &num_outputs_));
    OP_REQUIRES_OK(construction, steps_.Read(construction, static_cast<int64_t>(dims_.size())));
  }

  void Compute(tf::OpKernelContext* context) override {
    const int num_tables = static_cast<int>(dims_.size());
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    const GroupLookup* state = StateIn<GroupLookup>(context->input(num_tables));
    OP_REQUIRES(context, state != nullptr,
                tf::errors::InvalidArgument(
                    "SokGroupLookupApplyGradients: `plan` is not the plan of a SokGroupLookup"));
    const LookupPlan& plan = state->plan;
    std::vector<GradientRows> gradients;
    OP_REQUIRES_OK(context, ReadOutputGradients(context, num_tables + 1, num_outputs_, plan, state->layout,
                                                dims_, std::vector<bool>(plan.lookups.size()), &gradients));
    std::vector<TableStep> steps;
    OP_REQUIRES_OK(context, steps_.Steps(context, refs, tables, &steps));
    TfExecutor executor(context);
    OP_REQUIRES_OK(context, ToTf(GroupTrain(executor, plan, gradients, steps_.optimizer(), steps,
                                            scratch_.Take().get())));
  }

 private:
  std::vector<int64_t> dims_;
  TableSteps steps_;
  int num_outputs_ = 0;
  ObjectPool<GradientScratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookupApplyGradients").Device(tf::DEVICE_CPU),
                        GroupLookupApplyGradientsOp);

}  // namespace
}  // namespace sok
