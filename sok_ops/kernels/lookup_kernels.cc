// Kernels of the group lookup and its gradient: they turn tensors into the engine's views and call the
// engine.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/base/status.h"
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
    GroupInputs inputs;
    OP_REQUIRES_OK(context, ReadGroupInputs(context, tables, &shape, &inputs));
    std::vector<OutputRows> outputs;
    OP_REQUIRES_OK(context,
                   AllocateOutputs(context, attributes_->layout, shape.outputs, tables.refs, &outputs));
    const GroupBatch batch{tables.tables, attributes_->specs, inputs.lookups, shape.training};
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, tables.Named(tables.engine->Lookup(*call, batch, done->plan.get(), outputs,
                                                               scratch_.Take(tables.engine).get())));
    OP_REQUIRES_OK(context, OutputState(context, attributes_->layout.num_outputs(), std::move(done)));
  }

 private:
  const std::shared_ptr<GroupAttributes> attributes_ = std::make_shared<GroupAttributes>();
  ScratchPool scratch_;
  const std::shared_ptr<ObjectPool<GroupLookup>> done_ = std::make_shared<ObjectPool<GroupLookup>>();
};
SOK_KERNEL(GroupLookupOp, "SokGroupLookup", "handles", "dense_shapes", "training", "plan");
SOK_GPU_KERNEL(GroupLookupOp, "SokPackedGroupLookup", "handles", "batch", "dense_shapes", "training", "plan");

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
      OP_REQUIRES_OK(context, tables.Named(tables.engine->Backward(*call, *lookup->plan, gradients, grads,
                                                                   scratch_.Take(tables.engine).get())));
    }
    std::vector<float*> weight_grads;
    OP_REQUIRES_OK(context,
                   AllocateWeightGradients(context, 2 * num_tables, lookup->shape, weighted_, &weight_grads));
    if (!WantsAny(weight_grads)) return;
    OP_REQUIRES_OK(context, tables.Named(tables.engine->WeightGradients(*call, tables.tables, *lookup->plan,
                                                                        gradients, weight_grads)));
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<bool> weighted_;
  ScratchPool scratch_;
};
SOK_KERNEL(GroupLookupGradOp, "SokGroupLookupGrad", "handles", "plan");

// Kernels of a group lookup in two ops: the first does the work that needs only ids, the second the work that
// needs rows.

// The output of SokGroupLookupAhead, an input of SokGroupLookupRead.
struct LookupAhead {
  Status status;                          // if an error, the lookup's plan must not be read
  std::vector<std::string> tables;        // names
  std::shared_ptr<GroupLookup> lookup;    // completed by SokGroupLookupRead
  mutable std::atomic<bool> read{false};  // whether SokGroupLookupRead has begun
};

class GroupLookupAheadOp : public tf::OpKernel {
 public:
  explicit GroupLookupAheadOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, attributes_->Read(construction));
  }

  void Compute(tf::OpKernelContext* context) override {
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, attributes_->dims, &tables));
    OP_REQUIRES_OK(context, CheckOneRank(tables));
    auto ahead = std::make_shared<LookupAhead>();
    for (const TableRef& ref : tables.refs) ahead->tables.push_back(ref.name());
    ahead->lookup = TakeWithPlan(done_, tables.engine);
    ahead->lookup->shape.attributes = attributes_;
    // An error must not fail the current step, which trains an earlier batch: SokGroupLookupRead raises it.
    ahead->status = WithinMemory([&] { return Merge(context, tables, ahead->lookup.get()); });
    OP_REQUIRES_OK(context, OutputState(context, 0, std::move(ahead)));
  }

 private:
  Status Merge(tf::OpKernelContext* context, const GroupTables& tables, GroupLookup* lookup) {
    GroupInputs inputs;
    SOK_RETURN_IF_ERROR(FromTf(ReadGroupInputs(context, tables, &lookup->shape, &inputs)));
    const GroupBatch batch{tables.tables, attributes_->specs, inputs.lookups, lookup->shape.training};
    const TfEngineContext call(context);
    return tables.engine->Merge(*call, batch, lookup->plan.get(), scratch_.Take(tables.engine).get());
  }

  const std::shared_ptr<GroupAttributes> attributes_ = std::make_shared<GroupAttributes>();
  ScratchPool scratch_;
  // Shared, because objects that are held for a later run or for the gradient may outlive the kernel.
  const std::shared_ptr<ObjectPool<GroupLookup>> done_ = std::make_shared<ObjectPool<GroupLookup>>();
};
SOK_KERNEL(GroupLookupAheadOp, "SokGroupLookupAhead", "handles", "dense_shapes", "training", "ahead");
SOK_GPU_KERNEL(GroupLookupAheadOp, "SokPackedGroupLookupAhead", "handles", "batch", "dense_shapes",
               "training", "ahead");

class GroupLookupReadOp : public tf::OpKernel {
 public:
  explicit GroupLookupReadOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_outputs", &num_outputs_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_lookups", &num_lookups_));
  }

  void Compute(tf::OpKernelContext* context) override {
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, dims_, &tables));
    OP_REQUIRES_OK(context, CheckOneRank(tables));
    const auto* ahead = StateIn<LookupAhead>(context->input(static_cast<int>(dims_.size())));
    OP_REQUIRES(context, ahead != nullptr,
                tf::errors::InvalidArgument(
                    "SokGroupLookupRead: `ahead` is not the output of a SokGroupLookupAhead"));
    OP_REQUIRES_OK(context, CheckFits(*ahead, tables));
    OP_REQUIRES(
        context, !ahead->read.exchange(true),
        tf::errors::FailedPrecondition("Lookup in embedding variable '", tables.refs[0].name(),
                                       "': the ids that were merged ahead have been looked up already"));
    OP_REQUIRES_OK(context, tables.Named(ahead->status));
    const GroupShape& shape = ahead->lookup->shape;
    std::vector<OutputRows> outputs;
    OP_REQUIRES_OK(context,
                   AllocateOutputs(context, shape.attributes->layout, shape.outputs, tables.refs, &outputs));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, tables.Named(tables.engine->Read(*call, tables.tables, ahead->lookup->plan.get(),
                                                             outputs, scratch_.Take(tables.engine).get())));
    OP_REQUIRES_OK(context, OutputState(context, num_outputs_, ahead->lookup));
  }

 private:
  tf::Status CheckFits(const LookupAhead& ahead, const GroupTables& tables) const {
    const OutputLayout& layout = ahead.lookup->shape.attributes->layout;
    if (ahead.tables.size() != tables.refs.size() || layout.num_outputs() != num_outputs_ ||
        layout.num_lookups() != num_lookups_) {
      return tf::errors::InvalidArgument("SokGroupLookupRead: ", num_lookups_, " lookups in ",
                                         tables.refs.size(), " tables with ", num_outputs_,
                                         " outputs, but `ahead` has ", layout.num_lookups(), " in ",
                                         ahead.tables.size(), " with ", layout.num_outputs());
    }
    for (size_t t = 0; t < tables.refs.size(); ++t) {
      const std::string& name = tables.refs[t].name();
      const bool same_kind = ahead.lookup->shape.attributes->dims[t] == dims_[t] &&
                             &ahead.lookup->plan->engine() == tables.engine;
      if (name == ahead.tables[t] && same_kind) continue;
      return tf::errors::InvalidArgument("Lookup in embedding variable '", name,
                                         "': the ids were merged ahead for embedding variable '",
                                         ahead.tables[t], "'");
    }
    return tf::Status();
  }

  std::vector<int64_t> dims_;
  int num_outputs_ = 0;
  int num_lookups_ = 0;
  ScratchPool scratch_;
};
SOK_KERNEL(GroupLookupReadOp, "SokGroupLookupRead", "handles", "ahead", "plan");

}  // namespace

}  // namespace sok
