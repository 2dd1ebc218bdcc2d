// Kernels of the backward pass of a sharded group. They send gradients to the owners of the rows and sum them
// there, into tensors or directly into optimizer steps.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/engine/registry.h"
#include "cc/messages/message.h"
#include "cc/table/record_layout.h"
#include "sok_ops/kernels/exchange_tensors.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/group_lookup.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_engine_context.h"
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
                tf::errors::InvalidArgument("SokGroupReduce: num_weights is ", num_weights,
                                            ", not the number of lookups that are `weighted`"));
  }

  void Compute(tf::OpKernelContext* context) override {
    const int plan = static_cast<int>(dims_.size());
    GroupTables tables;
    OP_REQUIRES_OK(context, ReadTables(context, dims_, &tables, TableUse::kMessages));
    const RoutedLookup* routed = StateIn<RoutedLookup>(context->input(plan));
    OP_REQUIRES(context, routed != nullptr && &routed->group->engine() == tables.engine,
                tf::errors::InvalidArgument(
                    "SokGroupReduce: `plan` is not the output of a SokGroupRoute for these tables"));
    Inbox replies;
    OP_REQUIRES_OK(context, ReadInbox(context, routed->rank, &replies));
    std::vector<GradientRows> gradients;
    int first_gradient = 0;
    int end = 0;
    OP_REQUIRES_OK(context, InputRange("gradients", &first_gradient, &end));
    OP_REQUIRES_OK(context, ReadOutputGradients(context, first_gradient, end - first_gradient, routed->shape,
                                                dims_, weighted_, &gradients));
    const tf::DataType sent_as = tables.refs[0].resource->gradient_dtype();
    const TfEngineContext call(context);
    OutgoingWords outgoing(context, routed->rank);
    OP_REQUIRES_OK(context, tables.Named(tables.engine->Reduce(*call, *routed->group, gradients, replies,
                                                               FormatOf(sent_as), outgoing)));
    std::vector<float*> weight_grads;
    OP_REQUIRES_OK(context, AllocateWeightGradients(context, kFirstWeightGradient, routed->shape, weighted_,
                                                    &weight_grads));
    if (!WantsAny(weight_grads)) return;
    OP_REQUIRES_OK(context, tables.Named(tables.engine->RoutedWeightGradients(*call, *routed->group, replies,
                                                                              gradients, weight_grads)));
  }

 private:
  static constexpr int kFirstWeightGradient = 2;  // after words and splits

  std::vector<int64_t> dims_;
  std::vector<bool> weighted_;
};
SOK_KERNEL(GroupReduceOp, "SokGroupReduce", "handles", "plan", "received_splits", "sent_splits", "splits");

// What a sum over ranks takes. Valid as long as the kernel's inputs.
struct Arrived {
  GroupTables tables;
  const ServedLookup* served = nullptr;
  Inbox messages;  // with the gradients of `served`
};

// Reads the first inputs of a kernel: tables with rows of lengths `dims`, what they served, and messages.
tf::Status ReadArrived(tf::OpKernelContext* context, const std::vector<int64_t>& dims, Arrived* arrived) {
  TF_RETURN_IF_ERROR(ReadAnsweringTables(context, dims, &arrived->tables));
  const int served = static_cast<int>(dims.size());
  arrived->served = StateIn<ServedLookup>(context->input(served));
  if (arrived->served == nullptr || arrived->served->dims != dims ||
      &arrived->served->group->engine() != arrived->tables.engine) {
    return tf::errors::InvalidArgument(context->op_kernel().type_string(),
                                       ": `served` is not the output of a SokGroupServe for these tables");
  }
  return ReadInbox(context, arrived->served->rank, &arrived->messages);
}

class GroupSumOp : public tf::OpKernel {
 public:
  explicit GroupSumOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
  }

  void Compute(tf::OpKernelContext* context) override {
    Arrived arrived;
    OP_REQUIRES_OK(context, ReadArrived(context, dims_, &arrived));
    const ServedGroup& served = *arrived.served->group;
    const int num_tables = static_cast<int>(dims_.size());
    const TfEngineContext call(context);
    std::vector<float*> sums(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      OP_REQUIRES_OK(context,
                     AllocateRowGradients(context, *call, t, num_tables, served, dims_[t], &sums[t]));
    }
    Engine* const engine = arrived.tables.engine;
    OP_REQUIRES_OK(context, arrived.tables.Named(engine->Sum(*call, served, arrived.messages, sums,
                                                             scratch_.Take(engine).get())));
  }

 private:
  std::vector<int64_t> dims_;
  ScratchPool scratch_;
};
SOK_KERNEL(GroupSumOp, "SokGroupSum", "handles", "served", "received_splits", "sent_splits");

class GroupSumApplyGradientsOp : public tf::OpKernel {
 public:
  explicit GroupSumApplyGradientsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("divisor", &divisor_));
    OP_REQUIRES_OK(construction, steps_.Read(construction, static_cast<int64_t>(dims_.size())));
  }

  void Compute(tf::OpKernelContext* context) override {
    Arrived arrived;
    OP_REQUIRES_OK(context, ReadArrived(context, dims_, &arrived));
    std::vector<EngineStep> steps;
    OP_REQUIRES_OK(context, steps_.Steps(context, arrived.tables, &steps));
    const TfEngineContext call(context);
    Engine* const engine = arrived.tables.engine;
    OP_REQUIRES_OK(context, arrived.tables.Named(engine->SumAndTrain(
                                *call, *arrived.served->group, arrived.messages, static_cast<float>(divisor_),
                                steps_.optimizer(), steps, scratch_.Take(engine).get())));
  }

 private:
  std::vector<int64_t> dims_;
  int divisor_ = 1;
  TableSteps steps_;
  ScratchPool scratch_;
};
SOK_KERNEL(GroupSumApplyGradientsOp, "SokGroupSumApplyGradients", "handles", "served", "received_splits",
           "sent_splits", "hyper");

// Copies tensors on the host: a program reads these gradients only if it changes them.
class GroupJoinOp : public tf::OpKernel {
 public:
  explicit GroupJoinOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    int num_parts;
    OP_REQUIRES_OK(construction, construction->GetAttr("num_parts", &num_parts));
    const int tables = num_tables();
    OP_REQUIRES(construction, num_parts % tables == 0 && num_parts / tables <= kMaxParts,
                tf::errors::InvalidArgument("SokGroupJoin: ", num_parts, " parts of ", tables, " tables"));
  }

  void Compute(tf::OpKernelContext* context) override {
    tf::OpInputList indices;
    tf::OpInputList values;
    OP_REQUIRES_OK(context, context->input_list("part_indices", &indices));
    OP_REQUIRES_OK(context, context->input_list("part_values", &values));
    for (int t = 0; t < num_tables(); ++t) OP_REQUIRES_OK(context, Join(context, t, indices, values));
  }

 private:
  int num_tables() const { return static_cast<int>(dims_.size()); }

  tf::Status Join(tf::OpKernelContext* context, int t, const tf::OpInputList& indices,
                  const tf::OpInputList& values) const {
    int64_t rows = 0;
    for (int part = t; part < indices.size(); part += num_tables()) {
      rows += indices[part].NumElements();
      if (values[part].NumElements() == indices[part].NumElements() * dims_[t]) continue;
      return tf::errors::InvalidArgument("SokGroupJoin: gradients of shape ",
                                         values[part].shape().DebugString(), " for ",
                                         indices[part].NumElements(), " rows of dim ", dims_[t]);
    }
    tf::Tensor* all_indices = nullptr;
    tf::Tensor* all_values = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(t, tf::TensorShape({rows}), &all_indices));
    TF_RETURN_IF_ERROR(
        context->allocate_output(num_tables() + t, tf::TensorShape({rows, dims_[t]}), &all_values));
    int64_t* index = all_indices->flat<int64_t>().data();
    float* value = all_values->flat<float>().data();
    for (int part = t; part < indices.size(); part += num_tables()) {
      const auto of_part = indices[part].flat<int64_t>();
      const auto values_of_part = values[part].flat<float>();
      const int64_t server = part / num_tables();
      index = std::transform(of_part.data(), of_part.data() + of_part.size(), index,
                             [&](int64_t reference) { return reference | server << kReferenceBits; });
      value = std::copy_n(values_of_part.data(), values_of_part.size(), value);
    }
    return tf::Status();
  }

  std::vector<int64_t> dims_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupJoin").Device(tf::DEVICE_CPU), GroupJoinOp);

class DivideGradientsOp : public tf::OpKernel {
 public:
  explicit DivideGradientsOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("divisor", &divisor_));
    const StatusOr<Engine*> engine = FindEngine(EngineOfDevice(*construction));
    OP_REQUIRES_OK(construction, ToTf(engine.status()));
    engine_ = engine.value();
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& values = context->input(0);
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, values.shape(), &result));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context,
                   ToTf(engine_->Divide(*call, values.flat<float>().data(), values.NumElements(),
                                        static_cast<float>(divisor_), result->flat<float>().data())));
  }

 private:
  int divisor_ = 1;
  Engine* engine_ = nullptr;
};
SOK_KERNEL(DivideGradientsOp, "SokDivideGradients");

}  // namespace
}  // namespace sok
