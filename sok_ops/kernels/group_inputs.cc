#include "sok_ops/kernels/group_inputs.h"

#include <algorithm>
#include <set>
#include <utility>

namespace sok {

namespace tf = ::tensorflow;

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

tf::Status ReadTraining(tf::OpKernelContext* context, const TableRef& table, bool* is_training) {
  const tf::Tensor& training = context->input(context->num_inputs() - 1);
  if (training.NumElements() != 1) {
    return tf::errors::InvalidArgument("Lookup in embedding variable '", table.name(),
                                       "': `training` has shape ", training.shape().DebugString(),
                                       ", not []");
  }
  *is_training = training.flat<bool>()(0);
  return tf::Status();
}

namespace {

int NumBagInputs(const LookupSpec& spec) {
  return spec.layout == IdLayout::kSparse ? 2 : spec.layout == IdLayout::kRagged ? 1 : 0;
}

}  // namespace

std::vector<LookupTensors> InputTensors(tf::OpKernelContext* context, const std::vector<LookupSpec>& specs,
                                        int64_t num_tables) {
  int input = static_cast<int>(num_tables);
  int bags = input + static_cast<int>(specs.size());
  int weights = bags;
  for (const LookupSpec& spec : specs) weights += NumBagInputs(spec);
  std::vector<LookupTensors> all;
  for (const LookupSpec& spec : specs) {
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

tf::Status ReadOutputGradients(tf::OpKernelContext* context, int first_input, const LookupPlan& plan,
                               const std::vector<int64_t>& dims, const std::vector<bool>& weighted,
                               std::vector<GradientRows>* gradients) {
  const int lookups = context->num_inputs() - first_input;
  bool fits = plan.parts.size() == dims.size() && static_cast<int>(plan.lookups.size()) == lookups &&
              static_cast<int>(weighted.size()) == lookups;
  for (int l = 0; fits && l < lookups; ++l) {
    const tf::Tensor& gradient = context->input(first_input + l);
    const Lookup& lookup = plan.lookups[l];
    const int64_t dim = dims[lookup.table];
    fits = gradient.NumElements() == lookup.num_bags() * dim && (!weighted[l] || lookup.pooled);
    gradients->push_back({gradient.flat<float>().data(), dim});
  }
  return fits ? tf::Status()
              : tf::errors::InvalidArgument(context->op_kernel().type_string(),
                                            ": gradients do not fit the plan's outputs");
}

tf::Status AllocateRowGradients(tf::OpKernelContext* context, int t, int num_tables, const TablePart& part,
                                int64_t dim, float** values) {
  tf::Tensor* indices = nullptr;
  tf::Tensor* gradients = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(t, tf::TensorShape({part.trained}), &indices));
  TF_RETURN_IF_ERROR(
      context->allocate_output(num_tables + t, tf::TensorShape({part.trained, dim}), &gradients));
  std::copy_n(part.rows.begin(), part.trained, indices->flat<int64_t>().data());
  *values = gradients->flat<float>().data();
  return tf::Status();
}

}  // namespace sok
