// The kernel that trains the rows of a group's tables with the gradients of the group's outputs.
#include <string>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/group/group_training.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/state_variant.h"
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
    OP_REQUIRES_OK(construction, construction->GetAttr("trained", &trained_));
    OP_REQUIRES_OK(construction, construction->GetAttr("optimizer", &optimizer_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_outputs", &num_outputs_));
    int num_trained;
    OP_REQUIRES_OK(construction, construction->GetAttr("num_trained", &num_trained));
    std::vector<bool> seen(dims_.size(), false);
    for (const int t : trained_) {
      const bool fits = t >= 0 && t < static_cast<int>(dims_.size()) && !seen[t];
      OP_REQUIRES(construction, fits,
                  tf::errors::InvalidArgument("SokGroupLookupApplyGradients: table ", t, " of ", dims_.size(),
                                              " in `trained`, or twice there"));
      seen[t] = true;
    }
    OP_REQUIRES(construction, static_cast<int>(trained_.size()) == num_trained,
                tf::errors::InvalidArgument("SokGroupLookupApplyGradients: ", num_trained,
                                            " hyper-parameter vectors for ", trained_.size(), " tables"));
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
    for (size_t i = 0; i < trained_.size(); ++i) {
      const tf::Tensor& hyper = context->input(num_tables + 1 + num_outputs_ + static_cast<int>(i));
      OP_REQUIRES(context, hyper.dims() == 1,
                  tf::errors::InvalidArgument("Embedding variable '", refs[trained_[i]].name(),
                                              "': hyper-parameters of shape ", hyper.shape().DebugString(),
                                              ", not [h]"));
      steps.push_back({trained_[i], tables[trained_[i]], {hyper.flat<float>().data(), hyper.NumElements()}});
    }
    TfExecutor executor(context);
    OP_REQUIRES_OK(context,
                   ToTf(GroupTrain(executor, plan, gradients, optimizer_, steps, scratch_.Take().get())));
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<int32_t> trained_;
  std::string optimizer_;
  int num_outputs_ = 0;
  ObjectPool<GradientScratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookupApplyGradients").Device(tf::DEVICE_CPU),
                        GroupLookupApplyGradientsOp);

}  // namespace
}  // namespace sok
