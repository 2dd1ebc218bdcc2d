// Kernels of a group lookup in tables that are sharded over ranks. They send ids to their owners, send rows
// back, and compute outputs.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "sok_ops/kernels/exchange_tensors.h"
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

tf::Status ReadModes(tf::OpKernelConstruction* construction, std::vector<ExchangeMode>* modes) {
  std::vector<std::string> names;
  TF_RETURN_IF_ERROR(construction->GetAttr("exchange", &names));
  for (const std::string& name : names) {
    modes->push_back(name == "sums" ? ExchangeMode::kSums : ExchangeMode::kRows);
  }
  return tf::Status();
}

class GroupRouteOp : public tf::OpKernel {
 public:
  explicit GroupRouteOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, attributes_->Read(construction));
    OP_REQUIRES_OK(construction, ReadModes(construction, &modes_));
    OP_REQUIRES_OK(construction, CheckModes());
    for (LookupSpec& spec : attributes_->specs) spec.keeps_bags = modes_[spec.table] == ExchangeMode::kSums;
  }

  void Compute(tf::OpKernelContext* context) override {
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, attributes_->dims, &tables, TableUse::kMessages));
    auto routed = std::make_shared<RoutedLookup>();
    routed->group = tables.engine->NewRoutedGroup();
    routed->rank = tables.options().rank;
    routed->shape.attributes = attributes_;
    GroupInputs inputs;
    // From here on errors are sent as messages, because the other ranks wait for a message from this rank.
    const Status status =
        WithinMemory([&] { return FromTf(ReadGroupInputs(context, tables, &routed->shape, &inputs)); });
    if (!status.ok()) routed->shape.outputs.clear();
    const GroupBatch batch{tables.tables, attributes_->specs, inputs.lookups, routed->shape.training};
    OutgoingWords outgoing(context, routed->rank);
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context,
                   tables.Named(tables.engine->Route(*call, batch, modes_, status, routed->group.get(),
                                                     scratch_.Take(tables.engine).get(), outgoing)));
    OP_REQUIRES_OK(context, OutputState(context, 2, std::move(routed)));
  }

 private:
  tf::Status CheckModes() const {
    bool fits = modes_.size() == attributes_->dims.size();
    for (size_t t = 0; fits && t < modes_.size(); ++t) {
      int lookups = 0;
      bool can_be_summed = true;
      for (const LookupSpec& spec : attributes_->specs) {
        if (spec.table != static_cast<int>(t)) continue;
        ++lookups;
        can_be_summed = can_be_summed && spec.pooled() && !spec.weighted;
      }
      fits = modes_[t] == ExchangeMode::kRows || (lookups == 1 && can_be_summed);
    }
    return fits ? tf::Status()
                : tf::errors::InvalidArgument(
                      "SokGroupRoute: `exchange` must have one mode for each table, and 'sums' only for "
                      "tables with exactly one lookup, pooled and without weights");
  }

  const std::shared_ptr<GroupAttributes> attributes_ = std::make_shared<GroupAttributes>();
  std::vector<ExchangeMode> modes_;
  ScratchPool scratch_;
};
SOK_KERNEL(GroupRouteOp, "SokGroupRoute", "handles", "dense_shapes", "training", "splits", "plan");
SOK_GPU_KERNEL(GroupRouteOp, "SokPackedGroupRoute", "handles", "batch", "dense_shapes", "training", "splits",
               "plan");

class GroupServeOp : public tf::OpKernel {
 public:
  explicit GroupServeOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, ReadModes(construction, &modes_));
  }

  void Compute(tf::OpKernelContext* context) override {
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadAnsweringTables(context, dims_, &tables));
    auto served = std::make_shared<ServedLookup>();
    served->group = tables.engine->NewServedGroup();
    served->rank = tables.options().rank;
    served->dims = dims_;
    Inbox requests;
    OP_REQUIRES_OK(context, ReadInbox(context, served->rank, &requests));
    OutgoingWords outgoing(context, requests.own());
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, tables.Named(tables.engine->Serve(*call, tables.tables, modes_, requests,
                                                              served->group.get(),
                                                              scratch_.Take(tables.engine).get(), outgoing)));
    OP_REQUIRES_OK(context, OutputState(context, 2, std::move(served)));
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<ExchangeMode> modes_;
  ScratchPool scratch_;
};
SOK_KERNEL(GroupServeOp, "SokGroupServe", "handles", "received_splits", "sent_splits", "splits", "served");

class GroupCombineOp : public tf::OpKernel {
 public:
  explicit GroupCombineOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const int num_tables = static_cast<int>(dims_.size());
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, dims_, &tables, TableUse::kMessages));
    const RoutedLookup* routed = StateIn<RoutedLookup>(context->input(num_tables));
    OP_REQUIRES(context, routed != nullptr && &routed->group->engine() == tables.engine,
                tf::errors::InvalidArgument(
                    "SokGroupCombine: `plan` is not the output of a SokGroupRoute for these tables"));
    const GroupAttributes& attributes = *routed->shape.attributes;
    OP_REQUIRES(context,
                attributes.layout.num_outputs() == context->num_outputs() && attributes.dims == dims_,
                tf::errors::InvalidArgument("SokGroupCombine: ", context->num_outputs(), " outputs and ",
                                            num_tables, " tables do not fit the plan"));
    Inbox replies;
    OP_REQUIRES_OK(context, ReadInbox(context, routed->rank, &replies));
    std::vector<OutputRows> outputs;
    // If this rank's inputs were wrong, there are no shapes, and the replies hold the error.
    if (!routed->shape.outputs.empty()) {
      OP_REQUIRES_OK(
          context, AllocateOutputs(context, attributes.layout, routed->shape.outputs, tables.refs, &outputs));
    }
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, tables.Named(tables.engine->Combine(*call, tables.tables, *routed->group, replies,
                                                                outputs)));
  }

 private:
  std::vector<int64_t> dims_;
};
SOK_KERNEL(GroupCombineOp, "SokGroupCombine", "handles", "plan", "received_splits", "sent_splits", "served");

}  // namespace
}  // namespace sok
