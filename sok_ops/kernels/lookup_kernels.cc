// Kernels of the group lookup and its gradient: they turn tensors into the engine's views and call the
// engine.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/object_pool.h"
#include "sok_ops/kernels/engine_pools.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/group_lookup.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class GroupLookupOp : public tf::OpKernel {
 public:
  explicit GroupLookupOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, attributes_->Read(construction));
  }

  void Compute(tf::OpKernelContext* context) override {
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, attributes_->dims, &tables));
    OP_REQUIRES_OK(context, CheckOneRank(tables));
    std::shared_ptr<GroupLookup> done = TakeWithPlan(done_, tables.engine);
    GroupShape& shape = done->shape;
    shape.attributes = attributes_;
    std::vector<LookupInput> inputs;
    OP_REQUIRES_OK(context, ReadGroupInputs(context, tables, &shape, &inputs));
    std::vector<OutputRows> outputs;
    OP_REQUIRES_OK(context,
                   AllocateOutputs(context, attributes_->layout, shape.outputs, tables.refs, &outputs));
    const GroupBatch batch{tables.tables, attributes_->specs, inputs, shape.training};
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, ToTf(tables.engine->Lookup(*call, batch, done->plan.get(), outputs,
                                                       scratch_.Take(tables.engine).get())));
    OP_REQUIRES_OK(context, OutputState(context, attributes_->layout.num_outputs(), std::move(done)));
  }

 private:
  const std::shared_ptr<GroupAttributes> attributes_ = std::make_shared<GroupAttributes>();
  ScratchPool scratch_;
  const std::shared_ptr<ObjectPool<GroupLookup>> done_ = std::make_shared<ObjectPool<GroupLookup>>();
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookup").Device(tf::DEVICE_CPU), GroupLookupOp);
SOK_GPU_KERNEL(GroupLookupOp, "SokGroupLookup", "handles", "dense_shapes", "training", "plan");

class GroupLookupGradOp : public tf::OpKernel {
 public:
  explicit GroupLookupGradOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("weighted", &weighted_));
    int num_weights;
    OP_REQUIRES_OK(construction, construction->GetAttr("num_weights", &num_weights));
    OP_REQUIRES(construction, std::count(weighted_.begin(), weighted_.end(), true) == num_weights,
                tf::errors::InvalidArgument("SokGroupLookupGrad: num_weights is ", num_weights,
                                            ", not the number of lookups that are `weighted`"));
  }

  void Compute(tf::OpKernelContext* context) override {
    const int num_tables = static_cast<int>(dims_.size());
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, dims_, &tables));
    const GroupLookup* lookup = nullptr;
    OP_REQUIRES_OK(context, ReadGroupLookup(context, num_tables, tables, &lookup));
    std::vector<GradientRows> gradients;
    OP_REQUIRES_OK(context,
                   ReadOutputGradients(context, num_tables + 1, context->num_inputs() - num_tables - 1,
                                       lookup->shape, dims_, weighted_, &gradients));

    const TfEngineContext call(context);
    std::vector<float*> grads(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      OP_REQUIRES_OK(context,
                     AllocateRowGradients(context, *call, t, num_tables, *lookup->plan, dims_[t], &grads[t]));
    }
    if (lookup->shape.training && WantsAny(grads)) {
      OP_REQUIRES_OK(context, ToTf(tables.engine->Backward(*call, *lookup->plan, gradients, grads,
                                                           scratch_.Take(tables.engine).get())));
    }
    std::vector<float*> weight_grads;
    OP_REQUIRES_OK(context,
                   AllocateWeightGradients(context, 2 * num_tables, lookup->shape, weighted_, &weight_grads));
    if (!WantsAny(weight_grads)) return;
    OP_REQUIRES_OK(context, ToTf(tables.engine->WeightGradients(*call, tables.tables, *lookup->plan,
                                                                gradients, weight_grads)));
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<bool> weighted_;
  ScratchPool scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookupGrad").Device(tf::DEVICE_CPU), GroupLookupGradOp);
SOK_GPU_KERNEL(GroupLookupGradOp, "SokGroupLookupGrad", "handles", "plan");

}  // namespace
}  // namespace sok
