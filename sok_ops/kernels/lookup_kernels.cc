// Kernels of the group lookup and its gradient: they translate tensors to the engine's views and call it.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/group/group_lookup.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/lookup_inputs.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_executor.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class GroupLookupOp : public tf::OpKernel {
 public:
  explicit GroupLookupOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, ReadLookupSpecs(construction, &specs_));
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, layout_.Read(construction, specs_, dims_));
  }

  void Compute(tf::OpKernelContext* context) override {
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    OP_REQUIRES_OK(context, CheckOneRank(refs[0]));
    std::shared_ptr<GroupLookup> done = TakeShared(done_);
    done->layout = layout_;
    LookupPlan* plan = &done->plan;
    OP_REQUIRES_OK(context, ReadTraining(context, refs[0], &plan->training));
    const std::vector<LookupTensors> tensors = InputTensors(context, specs_, dims_.size());
    std::vector<tf::TensorShape> shapes;
    OP_REQUIRES_OK(context, GroupOutputShapes(layout_, specs_, tensors, refs, &shapes));
    std::vector<OutputRows> outputs;
    OP_REQUIRES_OK(context, AllocateOutputs(context, layout_, shapes, refs, &outputs));
    TfExecutor executor(context);
    const ObjectPool<LookupScratch>::Lease scratch = scratch_.Take();
    OP_REQUIRES_OK(context, ToTf(ReadLookups(executor, specs_, tensors, refs, plan, &scratch->ids)));
    OP_REQUIRES_OK(context,
                   ToTf(GroupForward(executor, tables, scratch->ids.views, plan, outputs, &scratch->group)));
    OP_REQUIRES_OK(context, OutputState(context, layout_.num_outputs(), std::move(done)));
  }

 private:
  std::vector<LookupSpec> specs_;
  std::vector<int64_t> dims_;
  OutputLayout layout_;
  // Steps of one session may overlap, and a gradient may come after the kernel is gone.
  ObjectPool<LookupScratch> scratch_;
  const std::shared_ptr<ObjectPool<GroupLookup>> done_ = std::make_shared<ObjectPool<GroupLookup>>();
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookup").Device(tf::DEVICE_CPU), GroupLookupOp);

class GroupLookupGradOp : public tf::OpKernel {
 public:
  explicit GroupLookupGradOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("weighted", &weighted_));
    int num_weights;
    OP_REQUIRES_OK(construction, construction->GetAttr("num_weights", &num_weights));
    OP_REQUIRES(construction, std::count(weighted_.begin(), weighted_.end(), true) == num_weights,
                tf::errors::InvalidArgument("SokGroupLookupGrad: ", num_weights,
                                            " weight gradients, which `weighted` contradicts"));
  }

  void Compute(tf::OpKernelContext* context) override {
    const int num_tables = static_cast<int>(dims_.size());
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    const GroupLookup* state = StateIn<GroupLookup>(context->input(num_tables));
    OP_REQUIRES(
        context, state != nullptr,
        tf::errors::InvalidArgument("SokGroupLookupGrad: `plan` is not the plan of a SokGroupLookup"));
    const LookupPlan& plan = state->plan;
    std::vector<GradientRows> gradients;
    OP_REQUIRES_OK(context,
                   ReadOutputGradients(context, num_tables + 1, context->num_inputs() - num_tables - 1, plan,
                                       state->layout, dims_, weighted_, &gradients));

    std::vector<float*> grads(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      OP_REQUIRES_OK(context,
                     AllocateRowGradients(context, t, num_tables, plan.parts[t], dims_[t], &grads[t]));
    }
    TfExecutor executor(context);
    if (plan.training) {
      OP_REQUIRES_OK(context,
                     ToTf(GroupBackward(executor, plan, dims_, gradients, grads, scratch_.Take().get())));
    }
    int next_output = 2 * num_tables;
    for (int l = 0; l < state->layout.num_lookups(); ++l) {
      if (!weighted_[l]) continue;
      const int output = next_output++;
      // Mostly weights are inputs of the model, whose gradients nobody asks for.
      if (!context->output_required(output)) continue;
      const Lookup& lookup = plan.lookups[l];
      tf::Tensor* weight_grads = nullptr;
      OP_REQUIRES_OK(context,
                     context->allocate_output(output, tf::TensorShape({lookup.given}), &weight_grads));
      OP_REQUIRES_OK(context, ToTf(WeightBackward(executor, tables[lookup.table], plan, l, gradients[l],
                                                  {weight_grads->flat<float>().data(), lookup.given})));
    }
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<bool> weighted_;
  ObjectPool<GradientScratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookupGrad").Device(tf::DEVICE_CPU), GroupLookupGradOp);

}  // namespace
}  // namespace sok
