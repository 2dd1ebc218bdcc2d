// The kernel that trains the rows of a group's tables with the gradients of the group's outputs.
#include <vector>

#include "sok_ops/kernels/engine_pools.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/group_lookup.h"
#include "sok_ops/kernels/table_steps.h"
#include "sok_ops/kernels/tf_engine_context.h"
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
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, dims_, &tables));
    const GroupLookup* lookup = nullptr;
    OP_REQUIRES_OK(context, ReadGroupLookup(context, num_tables, tables, &lookup));
    const std::vector<bool> no_weights(lookup->shape.num_lookups());
    std::vector<GradientRows> gradients;
    OP_REQUIRES_OK(context, ReadOutputGradients(context, num_tables + 1, num_outputs_, lookup->shape, dims_,
                                                no_weights, &gradients));
    std::vector<EngineStep> steps;
    OP_REQUIRES_OK(context, steps_.Steps(context, tables, &steps));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, ToTf(tables.engine->Train(*call, *lookup->plan, gradients, steps_.optimizer(),
                                                      steps, scratch_.Take(tables.engine).get())));
  }

 private:
  std::vector<int64_t> dims_;
  TableSteps steps_;
  int num_outputs_ = 0;
  ScratchPool scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookupApplyGradients").Device(tf::DEVICE_CPU),
                        GroupLookupApplyGradientsOp);
SOK_GPU_KERNEL(GroupLookupApplyGradientsOp, "SokGroupLookupApplyGradients", "handles", "plan", "hyper");

}  // namespace
}  // namespace sok
