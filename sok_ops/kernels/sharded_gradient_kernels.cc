// Kernels of the way back of a sharded group: gradients to the rows' owners, and summed there.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/within_memory.h"
#include "cc/sharded/combine_group.h"
#include "cc/sharded/reduce_group.h"
#include "cc/sharded/sum_group.h"
#include "sok_ops/kernels/exchange_tensors.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/routed_lookup.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_executor.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

GradientFormat FormatOf(tf::DataType dtype) {
  return dtype == tf::DT_HALF       ? GradientFormat::kFloat16
         : dtype == tf::DT_BFLOAT16 ? GradientFormat::kBfloat16
                                    : GradientFormat::kFloat32;
}

class GroupReduceOp : public tf::OpKernel {
 public:
  explicit GroupReduceOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("weighted", &weighted_));
    int num_weights;
    OP_REQUIRES_OK(construction, construction->GetAttr("num_weights", &num_weights));
    OP_REQUIRES(construction, std::count(weighted_.begin(), weighted_.end(), true) == num_weights,
                tf::errors::InvalidArgument("SokGroupReduce: ", num_weights,
                                            " weight gradients, which `weighted` contradicts"));
  }

  void Compute(tf::OpKernelContext* context) override {
    const RoutedLookup* routed = StateIn<RoutedLookup>(context->input(0));
    OP_REQUIRES(context, routed != nullptr,
                tf::errors::InvalidArgument("SokGroupReduce: `plan` is not that of a SokGroupRoute"));
    const RoutePlan& plan = routed->plan;
    Inbox replies;
    OP_REQUIRES_OK(context, ReadInbox(context, 1, plan.rank, &replies));
    std::vector<GradientRows> gradients;
    OP_REQUIRES_OK(context,
                   ReadOutputGradients(context, 1 + kInboxInputs, context->num_inputs() - 1 - kInboxInputs,
                                       plan.lookups, routed->layout, dims_, weighted_, &gradients));
    tf::core::RefCountPtr<Runtime> runtime;
    OP_REQUIRES_OK(context, LookupRuntime(context, "The gradient of a lookup", &runtime));
    TfExecutor executor(context);
    OutgoingWords outgoing(context, plan.rank);
    OP_REQUIRES_OK(context, ToTf(WithinMemory([&] {
                     return ReduceGroup(executor, plan, gradients, replies, FormatOf(runtime->gradient_dtype),
                                        outgoing);
                   })));
    if (std::count(weighted_.begin(), weighted_.end(), true) == 0) return;
    ReceivedRows rows;
    OP_REQUIRES_OK(context, ToTf(WithinMemory([&] { return ReadReplies({}, plan, replies, &rows); })));
    OP_REQUIRES_OK(context, WriteWeightGradients(context, executor, plan, rows, gradients));
  }

 private:
  tf::Status WriteWeightGradients(tf::OpKernelContext* context, Executor& executor, const RoutePlan& plan,
                                  const ReceivedRows& rows, const std::vector<GradientRows>& gradients) {
    int output = 2;
    for (size_t l = 0; l < weighted_.size(); ++l) {
      if (!weighted_[l]) continue;
      const Lookup& lookup = plan.lookups.lookups[l];
      tf::Tensor* weight_grads = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(output++, tf::TensorShape({lookup.given}), &weight_grads));
      LookupWeightGradients(executor, plan.lookups, static_cast<int>(l), rows[lookup.table],
                            dims_[lookup.table], gradients[l],
                            {weight_grads->flat<float>().data(), lookup.given});
    }
    return tf::Status();
  }

  std::vector<int64_t> dims_;
  std::vector<bool> weighted_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupReduce").Device(tf::DEVICE_CPU), GroupReduceOp);

class GroupSumOp : public tf::OpKernel {
 public:
  explicit GroupSumOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const ServedPlan* plan = StateIn<ServedPlan>(context->input(0));
    OP_REQUIRES(context, plan != nullptr && plan->parts.size() == dims_.size(),
                tf::errors::InvalidArgument("SokGroupSum: `served` is not that of its SokGroupServe"));
    Inbox messages;
    OP_REQUIRES_OK(context, ReadInbox(context, 1, plan->rank, &messages));
    ArrivedGradients arrived;
    OP_REQUIRES_OK(context,
                   ToTf(WithinMemory([&] { return ReadGradients(*plan, dims_, messages, &arrived); })));
    const int num_tables = static_cast<int>(dims_.size());
    std::vector<float*> sums(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      OP_REQUIRES_OK(context,
                     AllocateRowGradients(context, t, num_tables, plan->parts[t].part, dims_[t], &sums[t]));
    }
    TfExecutor executor(context);
    OP_REQUIRES_OK(context, ToTf(SumGradients(executor, *plan, arrived, dims_, sums)));
  }

 private:
  std::vector<int64_t> dims_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupSum").Device(tf::DEVICE_CPU), GroupSumOp);

}  // namespace
}  // namespace sok
