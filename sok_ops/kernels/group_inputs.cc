#include "sok_ops/kernels/group_inputs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sok_ops/kernels/lookup_tensors.h"
#include "sok_ops/kernels/tf_status.h"

namespace sok {

namespace tf = ::tensorflow;

tf::Status ReadTables(tf::OpKernelContext* context, const std::vector<int64_t>& dims, GroupTables* tables) {
  std::set<const EngineTable*> seen;
  for (size_t t = 0; t < dims.size(); ++t) {
    TableRef ref;
    TF_RETURN_IF_ERROR(LookupTable(context, static_cast<int>(t), &ref));
    if (ref.table->options().dim != dims[t]) {
      return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' has dim ",
                                         ref.table->options().dim, ", not ", dims[t]);
    }
    if (!seen.insert(ref.table.get()).second) {
      return tf::errors::InvalidArgument("Embedding variable '", ref.name(),
                                         "' occurs twice in the handles of a group");
    }
    Engine& engine = ref.table->engine();
    if (t == 0) tables->engine = &engine;
    if (&engine != tables->engine) {
      return tf::errors::InvalidArgument("Embedding variables '", tables->refs[0].name(), "' and '",
                                         ref.name(), "' cannot be looked up in one group: the table of one ",
                                         "belongs to the engine '", tables->engine->name(),
                                         "', that of the other to '", engine.name(), "'");
    }
    tables->tables.push_back(ref.table.get());
    tables->refs.push_back(std::move(ref));
  }
  return tf::Status();
}

tf::Status CheckOneRank(const GroupTables& tables) {
  const TableOptions& options = tables.options();
  if (options.ranks == 1) return tf::Status();
  return tf::errors::FailedPrecondition("Lookup in embedding variable '", options.name,
                                        "' was built for one rank, but there are ", options.ranks,
                                        " ranks: initialize Horovod before building lookups");
}

namespace {

// Reads the last input of a lookup, a scalar bool. `table` is any table of the group; the error names it.
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

}  // namespace

tf::Status ReadGroupInputs(tf::OpKernelContext* context, const GroupTables& tables, GroupShape* shape,
                           std::vector<LookupInput>* inputs) {
  const GroupAttributes& attributes = *shape->attributes;
  TF_RETURN_IF_ERROR(ReadTraining(context, tables.refs[0], &shape->training));
  const std::vector<LookupTensors> tensors = InputTensors(context, attributes);
  std::vector<tf::TensorShape> of_lookups(tensors.size());
  inputs->resize(tensors.size());
  shape->num_ids.resize(tensors.size());
  shape->outputs.clear();
  for (size_t l = 0; l < tensors.size(); ++l) {
    const LookupSpec& spec = attributes.specs[l];
    TF_RETURN_IF_ERROR(ReadLookupTensors(spec, attributes.tensors[l], tensors[l], tables.refs[spec.table],
                                         &of_lookups[l], &(*inputs)[l]));
    shape->num_ids[l] = (*inputs)[l].num_ids;
  }
  return attributes.layout.Shapes(of_lookups, tables.refs, &shape->outputs);
}

namespace {

bool GradientsFit(tf::OpKernelContext* context, int first_input, int num_gradients, const GroupShape& shape,
                  const std::vector<int64_t>& dims, const std::vector<bool>& weighted) {
  const GroupAttributes& attributes = *shape.attributes;
  if (attributes.dims != dims || weighted.size() != attributes.specs.size() ||
      static_cast<int>(shape.outputs.size()) != num_gradients) {
    return false;
  }
  for (int o = 0; o < num_gradients; ++o) {
    if (context->input(first_input + o).NumElements() != shape.outputs[o].num_elements()) return false;
  }
  for (size_t l = 0; l < weighted.size(); ++l) {
    if (weighted[l] && !attributes.specs[l].weighted) return false;
  }
  return true;
}

}  // namespace

tf::Status ReadOutputGradients(tf::OpKernelContext* context, int first_input, int num_gradients,
                               const GroupShape& shape, const std::vector<int64_t>& dims,
                               const std::vector<bool>& weighted, std::vector<GradientRows>* gradients) {
  if (!GradientsFit(context, first_input, num_gradients, shape, dims, weighted)) {
    return tf::errors::InvalidArgument(context->op_kernel().type_string(),
                                       ": gradients do not fit the plan's outputs");
  }
  for (int o = 0; o < num_gradients; ++o) {
    shape.attributes->layout.AppendParts(o, context->input(first_input + o).flat<float>().data(), gradients);
  }
  return tf::Status();
}

tf::Status AllocateRowGradients(tf::OpKernelContext* context, const EngineContext& engine_context, int t,
                                int num_tables, const TrainedGroup& group, int64_t dim, float** values) {
  *values = nullptr;
  if (!context->output_required(t) && !context->output_required(num_tables + t)) return tf::Status();
  tf::Tensor* indices = nullptr;
  tf::Tensor* gradients = nullptr;
  const int64_t rows = group.trained_rows(t);
  TF_RETURN_IF_ERROR(context->allocate_output(t, tf::TensorShape({rows}), &indices));
  TF_RETURN_IF_ERROR(context->allocate_output(num_tables + t, tf::TensorShape({rows, dim}), &gradients));
  *values = gradients->flat<float>().data();
  return ToTf(group.WriteReferences(engine_context, t, indices->flat<int64_t>().data()));
}

tf::Status AllocateWeightGradients(tf::OpKernelContext* context, int first_output, const GroupShape& shape,
                                   const std::vector<bool>& weighted, std::vector<float*>* weight_grads) {
  weight_grads->assign(weighted.size(), nullptr);
  int output = first_output;
  for (size_t l = 0; l < weighted.size(); ++l) {
    if (!weighted[l]) continue;
    if (context->output_required(output)) {
      tf::Tensor* gradient = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(output, tf::TensorShape({shape.num_ids[l]}), &gradient));
      (*weight_grads)[l] = gradient->flat<float>().data();
    }
    ++output;
  }
  return tf::Status();
}

bool WantsAny(const std::vector<float*>& gradients) {
  return std::any_of(gradients.begin(), gradients.end(), [](const float* one) { return one != nullptr; });
}

}  // namespace sok
