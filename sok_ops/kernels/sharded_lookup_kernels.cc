// Kernels of a group lookup in tables that are sharded over ranks: ids to their owners, rows back, outputs.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/base/within_memory.h"
#include "cc/sharded/combine_group.h"
#include "cc/sharded/route_group.h"
#include "cc/sharded/serve_group.h"
#include "sok_ops/kernels/exchange_tensors.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/lookup_inputs.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/routed_lookup.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_executor.h"
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
    OP_REQUIRES_OK(construction, ReadLookupSpecs(construction, &specs_));
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, layout_.Read(construction, specs_, dims_));
    OP_REQUIRES_OK(construction, ReadModes(construction, &modes_));
    OP_REQUIRES_OK(construction, CheckModes());
    for (LookupSpec& spec : specs_) spec.keeps_bags = modes_[spec.table] == ExchangeMode::kSums;
  }

  void Compute(tf::OpKernelContext* context) override {
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    auto routed = std::make_shared<RoutedLookup>();
    routed->plan.rank = tables[0]->options().rank;
    routed->plan.ranks = tables[0]->options().ranks;
    routed->plan.modes = modes_;
    routed->layout = layout_;
    const ObjectPool<LookupScratch>::Lease scratch = scratch_.Take();
    // From here on an error is a message: the other ranks wait for one from this rank.
    const Status status =
        WithinMemory([&] { return Route(context, refs, tables, routed.get(), scratch.get()); });
    OutgoingWords outgoing(context, routed->plan.rank);
    OP_REQUIRES_OK(context,
                   ToTf(WithinMemory([&] { return WriteRequests(tables, status, routed->plan, outgoing); })));
    OP_REQUIRES_OK(context, OutputState(context, 2, std::move(routed)));
  }

 private:
  tf::Status CheckModes() const {
    bool fits = modes_.size() == dims_.size();
    for (size_t t = 0; fits && t < modes_.size(); ++t) {
      int lookups = 0;
      bool can_be_summed = true;
      for (const LookupSpec& spec : specs_) {
        if (spec.table != static_cast<int>(t)) continue;
        ++lookups;
        can_be_summed = can_be_summed && spec.pooled && !spec.weighted;
      }
      fits = modes_[t] == ExchangeMode::kRows || (lookups == 1 && can_be_summed);
    }
    return fits ? tf::Status()
                : tf::errors::InvalidArgument(
                      "SokGroupRoute: sums are exchanged for tables with one pooled lookup without weights");
  }

  Status Route(tf::OpKernelContext* context, const std::vector<TableRef>& refs,
               const std::vector<Table*>& tables, RoutedLookup* routed, LookupScratch* scratch) {
    LookupPlan* lookups = &routed->plan.lookups;
    SOK_RETURN_IF_ERROR(FromTf(ReadTraining(context, refs[0], &lookups->training)));
    const std::vector<LookupTensors> tensors = InputTensors(context, specs_, dims_.size());
    SOK_RETURN_IF_ERROR(FromTf(GroupOutputShapes(layout_, specs_, tensors, refs, &routed->output_shapes)));
    TfExecutor executor(context);
    SOK_RETURN_IF_ERROR(ReadLookups(executor, specs_, tensors, refs, lookups, &scratch->ids));
    return RouteGroup(executor, tables, scratch->ids.views, &routed->plan, &scratch->group);
  }

  std::vector<LookupSpec> specs_;
  std::vector<int64_t> dims_;
  OutputLayout layout_;
  std::vector<ExchangeMode> modes_;
  ObjectPool<LookupScratch> scratch_;  // steps of one session may overlap
};
REGISTER_KERNEL_BUILDER(Name("SokGroupRoute").Device(tf::DEVICE_CPU), GroupRouteOp);

class GroupServeOp : public tf::OpKernel {
 public:
  explicit GroupServeOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, ReadModes(construction, &modes_));
  }

  void Compute(tf::OpKernelContext* context) override {
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    const int rank = tables[0]->options().rank;
    Inbox requests;
    OP_REQUIRES_OK(context, ReadInbox(context, static_cast<int>(dims_.size()), rank, &requests));
    auto served = std::make_shared<ServedPlan>();
    const ObjectPool<GroupScratch>::Lease scratch = scratch_.Take();
    TfExecutor executor(context);
    OutgoingWords outgoing(context, rank);
    OP_REQUIRES_OK(context, ToTf(WithinMemory([&] {
                     return ServeGroup(executor, tables, modes_, rank, requests, served.get(), scratch.get(),
                                       outgoing);
                   })));
    OP_REQUIRES_OK(context, OutputState(context, 2, std::move(served)));
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<ExchangeMode> modes_;
  ObjectPool<GroupScratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupServe").Device(tf::DEVICE_CPU), GroupServeOp);

class GroupCombineOp : public tf::OpKernel {
 public:
  explicit GroupCombineOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const int num_tables = static_cast<int>(dims_.size());
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    const RoutedLookup* routed = StateIn<RoutedLookup>(context->input(num_tables));
    OP_REQUIRES(context, routed != nullptr,
                tf::errors::InvalidArgument("SokGroupCombine: `plan` is not that of a SokGroupRoute"));
    Inbox replies;
    OP_REQUIRES_OK(context, ReadInbox(context, num_tables + 1, routed->plan.rank, &replies));
    ReceivedRows received;
    OP_REQUIRES_OK(context,
                   ToTf(WithinMemory([&] { return ReadReplies(tables, routed->plan, replies, &received); })));
    OP_REQUIRES(
        context,
        routed->layout.num_outputs() == context->num_outputs() && routed->plan.modes.size() == dims_.size(),
        tf::errors::InvalidArgument("SokGroupCombine: ", context->num_outputs(), " outputs and ", num_tables,
                                    " tables do not fit the plan"));
    std::vector<OutputRows> outputs;
    OP_REQUIRES_OK(context, AllocateOutputs(context, routed->layout, routed->output_shapes, refs, &outputs));
    TfExecutor executor(context);
    OP_REQUIRES_OK(context, ToTf(CombineGroup(executor, routed->plan, received, outputs)));
  }

 private:
  std::vector<int64_t> dims_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupCombine").Device(tf::DEVICE_CPU), GroupCombineOp);

}  // namespace
}  // namespace sok
