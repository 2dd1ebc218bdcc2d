// Kernels of the way back of a sharded group: gradients to the rows' owners, and summed there, into memory or
// into the rows.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/base/vectorize.h"
#include "cc/base/within_memory.h"
#include "cc/pooling/vector_math.h"
#include "cc/sharded/combine_group.h"
#include "cc/sharded/reduce_group.h"
#include "cc/sharded/sum_group.h"
#include "sok_ops/kernels/exchange_tensors.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/routed_lookup.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/table_steps.h"
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
    if (!WantsWeightGradients(context)) return;
    ReceivedRows rows;
    OP_REQUIRES_OK(context, ToTf(WithinMemory([&] { return ReadReplies({}, plan, replies, &rows); })));
    OP_REQUIRES_OK(context, WriteWeightGradients(context, executor, plan, rows, gradients));
  }

 private:
  // Mostly weights are inputs of the model, whose gradients nobody asks for.
  static bool WantsWeightGradients(const tf::OpKernelContext* context) {
    for (int output = kFirstWeightGradient; output < context->num_outputs(); ++output) {
      if (context->output_required(output)) return true;
    }
    return false;
  }

  tf::Status WriteWeightGradients(tf::OpKernelContext* context, Executor& executor, const RoutePlan& plan,
                                  const ReceivedRows& rows, const std::vector<GradientRows>& gradients) {
    int output = kFirstWeightGradient;
    for (size_t l = 0; l < weighted_.size(); ++l) {
      if (!weighted_[l]) continue;
      if (!context->output_required(output)) {
        ++output;
        continue;
      }
      const Lookup& lookup = plan.lookups.lookups[l];
      tf::Tensor* weight_grads = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(output++, tf::TensorShape({lookup.given}), &weight_grads));
      LookupWeightGradients(executor, plan.lookups, static_cast<int>(l), rows[lookup.table],
                            dims_[lookup.table], gradients[l],
                            {weight_grads->flat<float>().data(), lookup.given});
    }
    return tf::Status();
  }

  static constexpr int kFirstWeightGradient = 2;  // after words and splits

  std::vector<int64_t> dims_;
  std::vector<bool> weighted_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupReduce").Device(tf::DEVICE_CPU), GroupReduceOp);

// Reads a ServedPlan in input `first_input`, and the gradients that arrived for it, in the inputs that
// follow. *plan lives as long as the inputs.
tf::Status ReadArrived(tf::OpKernelContext* context, int first_input, const std::vector<int64_t>& dims,
                       const ServedPlan** plan, ArrivedGradients* arrived) {
  *plan = StateIn<ServedPlan>(context->input(first_input));
  if (*plan == nullptr || (*plan)->parts.size() != dims.size()) {
    return tf::errors::InvalidArgument(context->op_kernel().type_string(),
                                       ": `served` is not that of its SokGroupServe");
  }
  Inbox messages;
  TF_RETURN_IF_ERROR(ReadInbox(context, first_input + 1, (*plan)->rank, &messages));
  return ToTf(WithinMemory([&] { return ReadGradients(**plan, dims, messages, arrived); }));
}

class GroupSumOp : public tf::OpKernel {
 public:
  explicit GroupSumOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const ServedPlan* plan = nullptr;
    ArrivedGradients arrived;
    OP_REQUIRES_OK(context, ReadArrived(context, 0, dims_, &plan, &arrived));
    const int num_tables = static_cast<int>(dims_.size());
    std::vector<float*> sums(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      OP_REQUIRES_OK(context,
                     AllocateRowGradients(context, t, num_tables, plan->parts[t].part, dims_[t], &sums[t]));
    }
    TfExecutor executor(context);
    OP_REQUIRES_OK(context, ToTf(SumGradients(executor, *plan, arrived, dims_, sums, scratch_.Take().get())));
  }

 private:
  std::vector<int64_t> dims_;
  ObjectPool<GradientScratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupSum").Device(tf::DEVICE_CPU), GroupSumOp);

class GroupSumApplyGradientsOp : public tf::OpKernel {
 public:
  explicit GroupSumApplyGradientsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("divisor", &divisor_));
    OP_REQUIRES_OK(construction, steps_.Read(construction, static_cast<int64_t>(dims_.size())));
  }

  void Compute(tf::OpKernelContext* context) override {
    const int num_tables = static_cast<int>(dims_.size());
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    const ServedPlan* plan = nullptr;
    ArrivedGradients arrived;
    OP_REQUIRES_OK(context, ReadArrived(context, num_tables, dims_, &plan, &arrived));
    std::vector<TableStep> steps;
    OP_REQUIRES_OK(context, steps_.Steps(context, refs, tables, &steps));
    TfExecutor executor(context);
    OP_REQUIRES_OK(context, ToTf(SumAndTrain(executor, *plan, arrived, static_cast<float>(divisor_),
                                             steps_.optimizer(), steps, scratch_.Take().get())));
  }

 private:
  std::vector<int64_t> dims_;
  int divisor_ = 1;
  TableSteps steps_;
  ObjectPool<GradientScratch> scratch_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupSumApplyGradients").Device(tf::DEVICE_CPU), GroupSumApplyGradientsOp);

class DivideGradientsOp : public tf::OpKernel {
 public:
  explicit DivideGradientsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("divisor", &divisor_));
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& values = context->input(0);
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, values.shape(), &result));
    const float* const from = values.flat<float>().data();
    float* const to = result->flat<float>().data();
    const auto divisor = static_cast<float>(divisor_);
    TfExecutor executor(context);
    executor.ParallelFor(values.NumElements(), /*ns_per_item=*/1, [&](int64_t begin, int64_t end) {
      if (to != from) std::copy(from + begin, from + end, to + begin);
      RunVectorized([&] { Divide(divisor, end - begin, to + begin); });
    });
  }

 private:
  int divisor_ = 1;
};
REGISTER_KERNEL_BUILDER(Name("SokDivideGradients").Device(tf::DEVICE_CPU), DivideGradientsOp);

}  // namespace
}  // namespace sok
