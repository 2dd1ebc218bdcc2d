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

tf::Status CheckOneRank(const TableRef& table) {
  const TableOptions& options = table.table->options();
  if (options.ranks == 1) return tf::Status();
  return tf::errors::FailedPrecondition("Lookup in embedding variable '", options.name,
                                        "' was built for one rank, and there are ", options.ranks,
                                        ": initialize Horovod before lookups are built");
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

const tf::Tensor* NextInput(tf::OpKernelContext* context, int* next) { return &context->input((*next)++); }

}  // namespace

std::vector<LookupTensors> InputTensors(tf::OpKernelContext* context, const std::vector<LookupSpec>& specs,
                                        int64_t num_tables) {
  int input = static_cast<int>(num_tables);
  int bags = input + static_cast<int>(specs.size());
  int weights = bags;
  for (const LookupSpec& spec : specs) weights += spec.bag_inputs();
  std::vector<LookupTensors> all;
  for (const LookupSpec& spec : specs) {
    LookupTensors tensors;
    tensors.ids = NextInput(context, &input);
    if (spec.layout == IdLayout::kSparse) {
      tensors.indices = NextInput(context, &bags);
      tensors.dense_shape = NextInput(context, &bags);
    } else if (spec.layout == IdLayout::kRagged) {
      tensors.row_splits = NextInput(context, &bags);
    }
    if (spec.placed) tensors.places = NextInput(context, &bags);
    if (spec.weighted) tensors.weights = NextInput(context, &weights);
    all.push_back(tensors);
  }
  return all;
}

tf::Status GroupOutputShapes(const OutputLayout& layout, const std::vector<LookupSpec>& specs,
                             const std::vector<LookupTensors>& tensors, const std::vector<TableRef>& tables,
                             std::vector<tf::TensorShape>* shapes) {
  std::vector<tf::TensorShape> of_lookups(specs.size());
  for (size_t l = 0; l < specs.size(); ++l) {
    TF_RETURN_IF_ERROR(OutputShape(specs[l], tensors[l], tables[specs[l].table], &of_lookups[l]));
  }
  return layout.Shapes(of_lookups, tables, shapes);
}

namespace {

bool GradientsFit(tf::OpKernelContext* context, int first_input, int num_gradients, const LookupPlan& plan,
                  const OutputLayout& layout, const std::vector<int64_t>& dims,
                  const std::vector<bool>& weighted) {
  if (plan.parts.size() != dims.size() || num_gradients != layout.num_outputs() ||
      weighted.size() != plan.lookups.size()) {
    return false;
  }
  for (int o = 0; o < layout.num_outputs(); ++o) {
    const int64_t floats = context->input(first_input + o).NumElements();
    for (int l = layout.begin(o); l < layout.begin(o + 1); ++l) {
      const Lookup& lookup = plan.lookups[l];
      if (lookup.num_bags() * layout.Width(o) != floats || (weighted[l] && !lookup.pooled)) return false;
    }
  }
  return true;
}

}  // namespace

tf::Status ReadOutputGradients(tf::OpKernelContext* context, int first_input, int num_gradients,
                               const LookupPlan& plan, const OutputLayout& layout,
                               const std::vector<int64_t>& dims, const std::vector<bool>& weighted,
                               std::vector<GradientRows>* gradients) {
  if (!GradientsFit(context, first_input, num_gradients, plan, layout, dims, weighted)) {
    return tf::errors::InvalidArgument(context->op_kernel().type_string(),
                                       ": gradients do not fit the plan's outputs");
  }
  for (int o = 0; o < layout.num_outputs(); ++o) {
    layout.AppendParts(o, context->input(first_input + o).flat<float>().data(), gradients);
  }
  return tf::Status();
}

tf::Status AllocateRowGradients(tf::OpKernelContext* context, int t, int num_tables, const TablePart& part,
                                int64_t dim, float** values) {
  *values = nullptr;
  if (!context->output_required(t) && !context->output_required(num_tables + t)) return tf::Status();
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
