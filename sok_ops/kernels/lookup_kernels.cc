// Kernels of the group lookup and its gradient: they translate tensors to the engine's views and call it.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/group/group_lookup.h"
#include "sok_ops/kernels/lookup_inputs.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_executor.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// A plan on its way from the lookup to its gradient. It lives in one process and is never written out.
struct PlanVariant {
  std::shared_ptr<const LookupPlan> plan;

  std::string TypeName() const { return "sok::LookupPlan"; }
  std::string DebugString() const { return TypeName(); }
  void Encode(tf::VariantTensorData* /*data*/) const {}
  bool Decode(const tf::VariantTensorData& /*data*/) { return false; }
};

// The tables behind the first inputs, one for each of `dims`: distinct, and with rows of those lengths.
tf::Status LookupTables(tf::OpKernelContext* context, const std::vector<int64_t>& dims,
                        std::vector<TableRef>* refs, std::vector<Table*>* tables) {
  std::set<const Table*> seen;
  for (size_t t = 0; t < dims.size(); ++t) {
    TableRef ref;
    TF_RETURN_IF_ERROR(LookupTable(context, static_cast<int>(t), &ref));
    if (ref.table->options().dim != dims[t]) {
      return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' has dim ",
                                         ref.table->options().dim, ", not ", dims[t]);
    }
    if (!seen.insert(ref.table.get()).second) {
      return tf::errors::InvalidArgument("Embedding variable '", ref.name(),
                                         "' stands twice in a group's handles");
    }
    tables->push_back(ref.table.get());
    refs->push_back(std::move(ref));
  }
  return tf::Status();
}

class GroupLookupOp : public tf::OpKernel {
 public:
  explicit GroupLookupOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, ReadLookupSpecs(construction, &specs_));
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
  }

  void Compute(tf::OpKernelContext* context) override {
    std::vector<TableRef> refs;
    std::vector<Table*> tables;
    OP_REQUIRES_OK(context, LookupTables(context, dims_, &refs, &tables));
    auto plan = std::make_shared<LookupPlan>();
    OP_REQUIRES_OK(context, ReadTraining(context, refs, &plan->training));
    const std::vector<LookupTensors> tensors = InputTensors(context);
    std::vector<OutputRows> outputs;
    OP_REQUIRES_OK(context, AllocateOutputs(context, refs, tensors, &outputs));
    TfExecutor executor(context);
    const ObjectPool<Scratch>::Lease scratch = scratch_.Take();
    OP_REQUIRES_OK(context, ToTf(ReadLookups(executor, specs_, tensors, refs, plan.get(), &scratch->ids)));
    OP_REQUIRES_OK(context, ToTf(GroupForward(executor, tables, scratch->ids.views, plan.get(), outputs,
                                              &scratch->group)));
    tf::Tensor* plan_tensor = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(static_cast<int>(specs_.size()), tf::TensorShape({}),
                                                     &plan_tensor));
    plan_tensor->scalar<tf::Variant>()() = PlanVariant{std::move(plan)};
  }

 private:
  // Working memory of a step.
  struct Scratch {
    GroupIds ids;
    GroupScratch group;
  };

  static tf::Status ReadTraining(tf::OpKernelContext* context, const std::vector<TableRef>& refs,
                                 bool* is_training) {
    const tf::Tensor& training = context->input(context->num_inputs() - 1);
    if (training.NumElements() != 1) {
      return tf::errors::InvalidArgument("Lookup in embedding variable '", refs[0].name(),
                                         "': `training` has shape ", training.shape().DebugString(),
                                         ", not []");
    }
    *is_training = training.flat<bool>()(0);
    return tf::Status();
  }

  // The inputs by lookup.
  std::vector<LookupTensors> InputTensors(tf::OpKernelContext* context) const {
    int input = static_cast<int>(dims_.size());
    int bags = input + static_cast<int>(specs_.size());
    int weights = bags;
    for (const LookupSpec& spec : specs_) weights += NumBagInputs(spec);
    std::vector<LookupTensors> all;
    for (const LookupSpec& spec : specs_) {
      LookupTensors tensors;
      tensors.ids = &context->input(input++);
      if (spec.layout == IdLayout::kSparse) {
        tensors.indices = &context->input(bags);
        tensors.dense_shape = &context->input(bags + 1);
      } else if (spec.layout == IdLayout::kRagged) {
        tensors.row_splits = &context->input(bags);
      }
      bags += NumBagInputs(spec);
      if (spec.weighted) tensors.weights = &context->input(weights++);
      all.push_back(tensors);
    }
    return all;
  }

  // Checks the inputs' shapes and allocates the outputs.
  tf::Status AllocateOutputs(tf::OpKernelContext* context, const std::vector<TableRef>& refs,
                             const std::vector<LookupTensors>& tensors, std::vector<OutputRows>* outputs) {
    for (size_t l = 0; l < specs_.size(); ++l) {
      const TableRef& table = refs[specs_[l].table];
      tf::TensorShape shape;
      TF_RETURN_IF_ERROR(OutputShape(specs_[l], tensors[l], table, &shape));
      tf::Tensor* output = nullptr;
      TF_RETURN_WITH_CONTEXT_IF_ERROR(context->allocate_output(static_cast<int>(l), shape, &output),
                                      "\nLookup in embedding variable '", table.name(), "'");
      outputs->push_back({output->flat<float>().data(), table.table->options().dim});
    }
    return tf::Status();
  }

  static int NumBagInputs(const LookupSpec& spec) {
    return spec.layout == IdLayout::kSparse ? 2 : spec.layout == IdLayout::kRagged ? 1 : 0;
  }

  std::vector<LookupSpec> specs_;
  std::vector<int64_t> dims_;
  ObjectPool<Scratch> scratch_;  // steps of one session may overlap
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookup").Device(tf::DEVICE_CPU), GroupLookupOp);

class GroupLookupGradOp : public tf::OpKernel {
 public:
  explicit GroupLookupGradOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dims", &dims_));
    OP_REQUIRES_OK(construction, construction->GetAttr("weighted", &weighted_));
    OP_REQUIRES_OK(construction, construction->GetAttr("num_lookups", &num_lookups_));
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
    const tf::Tensor& plan_tensor = context->input(num_tables);
    const PlanVariant* variant =
        plan_tensor.NumElements() == 1 ? plan_tensor.flat<tf::Variant>()(0).get<PlanVariant>() : nullptr;
    OP_REQUIRES(
        context, variant != nullptr && variant->plan != nullptr,
        tf::errors::InvalidArgument("SokGroupLookupGrad: `plan` is not the plan of a SokGroupLookup"));
    const LookupPlan& plan = *variant->plan;
    std::vector<GradientRows> gradients;
    OP_REQUIRES_OK(context, ReadGradients(context, plan, &gradients));

    std::vector<float*> grads(num_tables);
    for (int t = 0; t < num_tables; ++t) {
      const std::vector<int64_t>& rows = plan.parts[t].rows;
      const int64_t count = plan.training ? static_cast<int64_t>(rows.size()) : 0;
      tf::Tensor* indices = nullptr;
      tf::Tensor* values = nullptr;
      OP_REQUIRES_OK(context, context->allocate_output(t, tf::TensorShape({count}), &indices));
      OP_REQUIRES_OK(context,
                     context->allocate_output(num_tables + t, tf::TensorShape({count, dims_[t]}), &values));
      std::copy_n(rows.begin(), count, indices->flat<int64_t>().data());
      grads[t] = values->flat<float>().data();
    }
    TfExecutor executor(context);
    if (plan.training) OP_REQUIRES_OK(context, ToTf(GroupBackward(executor, plan, dims_, gradients, grads)));
    int output = 2 * num_tables;
    for (int l = 0; l < num_lookups_; ++l) {
      if (!weighted_[l]) continue;
      const Lookup& lookup = plan.lookups[l];
      tf::Tensor* weight_grads = nullptr;
      OP_REQUIRES_OK(context,
                     context->allocate_output(output++, tf::TensorShape({lookup.count}), &weight_grads));
      OP_REQUIRES_OK(context, ToTf(WeightBackward(executor, tables[lookup.table], plan, l, gradients[l],
                                                  {weight_grads->flat<float>().data(), lookup.count})));
    }
  }

 private:
  // Checks that the gradients and the plan belong together.
  tf::Status ReadGradients(tf::OpKernelContext* context, const LookupPlan& plan,
                           std::vector<GradientRows>* gradients) {
    bool fits = plan.parts.size() == dims_.size() && static_cast<int>(plan.lookups.size()) == num_lookups_ &&
                static_cast<int>(weighted_.size()) == num_lookups_;
    for (int l = 0; fits && l < num_lookups_; ++l) {
      const tf::Tensor& gradient = context->input(static_cast<int>(dims_.size()) + 1 + l);
      const Lookup& lookup = plan.lookups[l];
      const int64_t dim = dims_[lookup.table];
      fits = gradient.NumElements() == lookup.num_bags() * dim && (!weighted_[l] || lookup.pooled);
      gradients->push_back({gradient.flat<float>().data(), dim});
    }
    return fits ? tf::Status()
                : tf::errors::InvalidArgument("SokGroupLookupGrad: gradients do not fit the plan's outputs");
  }

  std::vector<int64_t> dims_;
  std::vector<bool> weighted_;
  int num_lookups_;
};
REGISTER_KERNEL_BUILDER(Name("SokGroupLookupGrad").Device(tf::DEVICE_CPU), GroupLookupGradOp);

}  // namespace
}  // namespace sok
