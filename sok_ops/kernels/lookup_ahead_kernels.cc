// Kernels of a group lookup in two ops: what can be done with ids alone, and later what needs rows.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/base/within_memory.h"
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

// What SokGroupLookupAhead leaves for SokGroupLookupRead.
struct LookupAhead {
  Status status;  // what is wrong with the ids; then there is no more than the tables' names
  std::vector<std::string> tables;
  std::vector<tf::TensorShape> output_shapes;
  std::shared_ptr<GroupLookup> lookup;    // which the read fills in
  mutable std::atomic<bool> read{false};  // whether one has begun
};

class GroupLookupAheadOp : public tf::OpKernel {
 public:
  explicit GroupLookupAheadOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, ReadLookupSpecs(construction, &specs_));
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, layout_.Read(construction, specs_, dims_));
  }

  void Compute(tf::OpKernelContext* context) override {
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    OP_REQUIRES_OK(context, CheckOneRank(refs[0]));
    auto ahead = std::make_shared<LookupAhead>();
    for (const TableRef& ref : refs) ahead->tables.push_back(ref.name());
    ahead->lookup = TakeShared(done_);
    ahead->lookup->layout = layout_;
    // The batch under way is fine, whatever is wrong with this one: an error waits for its turn.
    ahead->status = WithinMemory([&] { return Merge(context, refs, ahead.get()); });
    OP_REQUIRES_OK(context, OutputState(context, 0, std::move(ahead)));
  }

 private:
  Status Merge(tf::OpKernelContext* context, const std::vector<TableRef>& refs, LookupAhead* ahead) {
    LookupPlan* plan = &ahead->lookup->plan;
    SOK_RETURN_IF_ERROR(FromTf(ReadTraining(context, refs[0], &plan->training)));
    const std::vector<LookupTensors> tensors = InputTensors(context, specs_, dims_.size());
    SOK_RETURN_IF_ERROR(FromTf(GroupOutputShapes(layout_, specs_, tensors, refs, &ahead->output_shapes)));
    TfExecutor executor(context);
    const ObjectPool<LookupScratch>::Lease scratch = scratch_.Take();
    SOK_RETURN_IF_ERROR(ReadLookups(executor, specs_, tensors, refs, plan, &scratch->ids));
    return MergeGroup(executor, scratch->ids.views, plan, &scratch->group);
  }

  std::vector<LookupSpec> specs_;
  std::vector<int64_t> dims_;
  OutputLayout layout_;
  ObjectPool<LookupScratch> scratch_;
  // What is held for a later run, or used by its gradient, may outlive the kernel.
  const std::shared_ptr<ObjectPool<GroupLookup>> done_ = std::make_shared<ObjectPool<GroupLookup>>();
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookupAhead").Device(tf::DEVICE_CPU), GroupLookupAheadOp);

class GroupLookupReadOp : public tf::OpKernel {
 public:
  explicit GroupLookupReadOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_outputs", &num_outputs_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_lookups", &num_lookups_));
  }

  void Compute(tf::OpKernelContext* context) override {
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    OP_REQUIRES_OK(context, CheckOneRank(refs[0]));
    const auto* ahead = StateIn<LookupAhead>(context->input(static_cast<int>(dims_.size())));
    OP_REQUIRES(
        context, ahead != nullptr,
        tf::errors::InvalidArgument("SokGroupLookupRead: `ahead` is not that of a SokGroupLookupAhead"));
    OP_REQUIRES_OK(context, CheckFits(*ahead, refs));
    OP_REQUIRES(
        context, !ahead->read.exchange(true),
        tf::errors::FailedPrecondition("Lookup in embedding variable '", refs[0].name(),
                                       "': the ids that were merged ahead have been looked up already"));
    OP_REQUIRES_OK(context, ToTf(ahead->status));
    GroupLookup* const lookup = ahead->lookup.get();
    std::vector<OutputRows> outputs;
    OP_REQUIRES_OK(context, AllocateOutputs(context, lookup->layout, ahead->output_shapes, refs, &outputs));
    TfExecutor executor(context);
    OP_REQUIRES_OK(context, ToTf(ReadGroup(executor, tables, &lookup->plan, outputs, scratch_.Take().get())));
    OP_REQUIRES_OK(context, OutputState(context, num_outputs_, ahead->lookup));
  }

 private:
  tf::Status CheckFits(const LookupAhead& ahead, const std::vector<TableRef>& refs) const {
    const OutputLayout& layout = ahead.lookup->layout;
    if (ahead.tables.size() != refs.size() || layout.num_outputs() != num_outputs_ ||
        layout.num_lookups() != num_lookups_) {
      return tf::errors::InvalidArgument("SokGroupLookupRead: ", num_lookups_, " lookups in ", refs.size(),
                                         " tables with ", num_outputs_, " outputs, and `ahead` has ",
                                         layout.num_lookups(), " in ", ahead.tables.size(), " with ",
                                         layout.num_outputs());
    }
    for (size_t t = 0; t < refs.size(); ++t) {
      if (refs[t].name() == ahead.tables[t] && dims_[t] == refs[t].table->options().dim) continue;
      return tf::errors::InvalidArgument("Lookup in embedding variable '", refs[t].name(),
                                         "': the ids were merged ahead for embedding variable '",
                                         ahead.tables[t], "'");
    }
    return tf::Status();
  }

  std::vector<int64_t> dims_;
  int num_outputs_ = 0;
  int num_lookups_ = 0;
  ObjectPool<GroupScratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookupRead").Device(tf::DEVICE_CPU), GroupLookupReadOp);

}  // namespace
}  // namespace sok
