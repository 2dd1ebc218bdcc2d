#include "sok_ops/kernels/group_inputs.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cc/lookup/lookup_input.h"
#include "sok_ops/kernels/group_attributes.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/tf_status.h"
#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// Checks dtypes, shapes and the number of bags. Sets *shape to the shape of the lookup's output, and *input
// to the engine's view of the tensors, valid as long as the tensors. Errors name the variable.
tensorflow::Status ReadLookupTensors(const LookupSpec& spec, const TensorSpec& tensor_spec,
                                     const LookupTensors& tensors, const TableRef& table,
                                     tensorflow::TensorShape* shape, LookupInput* input);

namespace tf = ::tensorflow;

namespace {

tf::Status CheckDistinct(std::vector<EngineTable*> tables) {
  std::sort(tables.begin(), tables.end());
  const auto twice = std::adjacent_find(tables.begin(), tables.end());
  if (twice == tables.end()) return tf::Status();
  return tf::errors::InvalidArgument("Embedding variable '", (*twice)->options().name,
                                     "' occurs twice in the handles of a group");
}

}  // namespace

tf::Status ReadTables(tf::OpKernelContext* context, const std::vector<int64_t>& dims, GroupTables* tables,
                      TableUse use) {
  tables->refs.reserve(dims.size());
  tables->tables.reserve(dims.size());
  for (size_t t = 0; t < dims.size(); ++t) {
    TableRef ref;
    TF_RETURN_IF_ERROR(LookupTable(context, static_cast<int>(t), &ref, use));
    if (ref.table->options().dim != dims[t]) {
      return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' has dim ",
                                         ref.table->options().dim, ", not ", dims[t]);
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
  return CheckDistinct(tables->tables);
}

tf::Status GroupTables::Named(const Status& status) const {
  constexpr size_t kMostNames = 5;
  const bool is_unnamed = status.code() == StatusCode::kResourceExhausted &&
                          status.message().find("mbedding variable") == std::string::npos;
  if (!is_unnamed) return ToTf(status);
  std::string names = refs.size() == 1 ? "Embedding variable " : "Embedding variables ";
  const size_t shown = std::min(refs.size(), kMostNames);
  for (size_t t = 0; t < shown; ++t) names += StrCat(t > 0 ? ", '" : "'", refs[t].name(), "'");
  if (shown < refs.size()) names += StrCat(" and ", refs.size() - shown, " others");
  return ToTf(ResourceExhausted(names, ": ", status.message()));
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
                           GroupInputs* inputs) {
  const GroupAttributes& attributes = *shape->attributes;
  TF_RETURN_IF_ERROR(ReadTraining(context, tables.refs[0], &shape->training));
  int first = static_cast<int>(attributes.dims.size());
  if (attributes.has_batch()) TF_RETURN_IF_ERROR(UnpackBatch(context, first++, attributes, &inputs->batch));
  const std::vector<LookupTensors> tensors = InputTensors(context, first, attributes, inputs->batch);
  std::vector<tf::TensorShape> of_lookups(tensors.size());
  inputs->lookups.resize(tensors.size());
  shape->num_ids.resize(tensors.size());
  shape->outputs.clear();
  for (size_t l = 0; l < tensors.size(); ++l) {
    const LookupSpec& spec = attributes.specs[l];
    TF_RETURN_IF_ERROR(ReadLookupTensors(spec, attributes.tensors[l], tensors[l], tables.refs[spec.table],
                                         &of_lookups[l], &inputs->lookups[l]));
    shape->num_ids[l] = inputs->lookups[l].num_ids;
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
                                int num_tables, const LookedUpRows& group, int64_t dim, float** values) {
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

namespace {

// Errors of a lookup name its variable.
template <typename... Args>
tf::Status Invalid(const TableRef& table, const Args&... args) {
  return tf::errors::InvalidArgument("Lookup in embedding variable '", table.name(), "': ", StrCat(args...));
}

std::string Shape(const tf::Tensor& tensor) { return tensor.shape().DebugString(); }

// Whether a packed lookup's bags are 32-bit row splits.
bool AreNarrowSplits(const tf::Tensor* bags) { return bags != nullptr && bags->dtype() == tf::DT_INT32; }

tf::Status CheckSparseShapes(const LookupTensors& tensors, const TableRef& table) {
  const int64_t nnz = tensors.ids->NumElements();
  const tf::Tensor& indices = *tensors.indices;
  const tf::Tensor& dense_shape = *tensors.dense_shape;
  const bool narrow = AreNarrowSplits(&indices);
  if (!narrow && (indices.dims() != 2 || indices.dim_size(0) != nnz || indices.dim_size(1) != 2)) {
    return Invalid(table, "sparse ids have indices of shape ", Shape(indices), ", not [", nnz, ", 2]");
  }
  if (dense_shape.dims() != 1 || dense_shape.NumElements() != 2) {
    return Invalid(table, "sparse ids have a dense_shape of shape ", Shape(dense_shape), ", not [2]");
  }
  if (narrow && indices.NumElements() - 1 != dense_shape.flat<int64_t>()(0)) {
    return Invalid(table, "packed ids have splits of shape ", Shape(indices), " for ",
                   dense_shape.flat<int64_t>()(0), " bags");
  }
  return tf::Status();
}

tf::Status CheckRaggedShapes(const LookupTensors& tensors, const TableRef& table) {
  const tf::Tensor& row_splits = *tensors.row_splits;
  if (row_splits.dims() != 1 || row_splits.NumElements() < 1) {
    return Invalid(table, "ragged ids have row_splits of shape ", Shape(row_splits), ", not [bags + 1]");
  }
  return tf::Status();
}

tf::Status CheckWeightShapes(const LookupTensors& tensors, const TableRef& table) {
  const tf::Tensor& weights = *tensors.weights;
  if (weights.dims() != 1 || weights.NumElements() != tensors.ids->NumElements()) {
    return Invalid(table, "weights of shape ", Shape(weights), " for ", tensors.ids->NumElements(), " ids");
  }
  if (tensors.places == nullptr) return tf::Status();
  const tf::Tensor& of_ids = tensors.indices != nullptr ? *tensors.indices : *tensors.row_splits;
  if (of_ids.shape() != tensors.places->shape()) {
    return Invalid(table, "the weights are not at the places of the ids: their ",
                   tensors.indices != nullptr ? "indices" : "row_splits", " have shape ",
                   Shape(*tensors.places), ", those of the ids ", Shape(of_ids));
  }
  return tf::Status();
}

// Appends the bags of a pooled lookup to `shape`.
tf::Status AddBags(int64_t bags, int64_t slots, const TableRef& table, tf::TensorShape* shape) {
  if (bags < 0 || bags > std::numeric_limits<int32_t>::max()) {
    return Invalid(table, "the ids have ", bags, " rows, not between 0 and ",
                   std::numeric_limits<int32_t>::max());
  }
  if (slots == 0) return AddDim(bags, shape);
  if (bags % slots != 0) {
    return Invalid(table, "the ids have ", bags, " rows, which is not a multiple of slot_num ", slots);
  }
  TF_RETURN_IF_ERROR(AddDim(bags / slots, shape));
  return AddDim(slots, shape);
}

KeyType KeyTypeOf(tf::DataType dtype) {
  return dtype == tf::DT_INT32    ? KeyType::kInt32
         : dtype == tf::DT_UINT32 ? KeyType::kUint32
                                  : KeyType::kInt64;
}

template <typename T>
const T* DataOf(const tf::Tensor* tensor) {
  return tensor == nullptr ? nullptr : tensor->flat<T>().data();
}

LookupInput InputOf(const LookupTensors& tensors, int64_t bags) {
  LookupInput input;
  input.ids = tensors.ids->tensor_data().data();
  input.key_type = KeyTypeOf(tensors.ids->dtype());
  input.num_ids = tensors.ids->NumElements();
  input.num_bags = bags;
  const tf::Tensor* const of_bags = tensors.indices != nullptr ? tensors.indices : tensors.row_splits;
  if (AreNarrowSplits(of_bags)) {
    input.narrow_splits = DataOf<int32_t>(of_bags);
  } else {
    input.indices = DataOf<int64_t>(tensors.indices);
    input.row_splits = DataOf<int64_t>(tensors.row_splits);
  }
  input.weights = DataOf<float>(tensors.weights);
  input.weight_places = DataOf<int64_t>(tensors.places);
  return input;
}

}  // namespace

std::vector<LookupTensors> InputTensors(tf::OpKernelContext* context, int first,
                                        const GroupAttributes& attributes,
                                        const std::vector<tf::Tensor>& batch) {
  // The positions of the next tensors, by whether they are in the batch.
  struct {
    int ids, bags, weights;
  } next[2] = {{first, first, 0}, {0, 0, 0}};
  int dense_shape = 0;
  for (size_t l = 0; l < attributes.specs.size(); ++l) {
    auto& of = next[attributes.packed[l] ? 1 : 0];
    ++of.bags;
    of.weights += attributes.tensors[l].bag_inputs;
  }
  dense_shape = next[0].bags + next[0].weights;
  next[0].weights = dense_shape + attributes.num_sparse();
  next[1].weights += next[1].bags;

  std::vector<LookupTensors> all;
  for (size_t l = 0; l < attributes.specs.size(); ++l) {
    const LookupSpec& spec = attributes.specs[l];
    const bool packed = attributes.packed[l];
    auto& of = next[packed ? 1 : 0];
    const auto take = [&](int* position) {
      const tf::Tensor* const tensor = packed ? &batch[(*position)++] : &context->input((*position)++);
      return tensor->dtype() == tf::DT_INVALID ? nullptr : tensor;
    };
    LookupTensors tensors;
    tensors.ids = take(&of.ids);
    if (spec.layout == IdLayout::kSparse) {
      tensors.indices = take(&of.bags);
      tensors.dense_shape = &context->input(dense_shape++);
    } else if (spec.layout == IdLayout::kRagged) {
      tensors.row_splits = take(&of.bags);
    }
    if (attributes.tensors[l].placed) tensors.places = take(&of.bags);
    if (spec.weighted) tensors.weights = take(&of.weights);
    all.push_back(tensors);
  }
  return all;
}

tf::Status ReadLookupTensors(const LookupSpec& spec, const TensorSpec& tensor_spec,
                             const LookupTensors& tensors, const TableRef& table, tf::TensorShape* shape,
                             LookupInput* input) {
  if (tensors.ids->dtype() != table.resource->key_dtype()) {
    return Invalid(table, "ids are ", tf::DataTypeString(tensors.ids->dtype()), ", but its key_dtype is ",
                   tf::DataTypeString(table.resource->key_dtype()));
  }
  int64_t bags = 0;
  if (spec.layout == IdLayout::kDense) {
    *shape = tensors.ids->shape();
  } else {
    if (tensors.ids->dims() != 1) {
      return Invalid(table, "the values of its ids have shape ", Shape(*tensors.ids), ", not [ids]");
    }
    if (spec.layout == IdLayout::kSparse) {
      TF_RETURN_IF_ERROR(CheckSparseShapes(tensors, table));
      bags = tensors.dense_shape->flat<int64_t>()(0);
    } else {
      TF_RETURN_IF_ERROR(CheckRaggedShapes(tensors, table));
      bags = tensors.row_splits->NumElements() - 1;
    }
    *shape = tf::TensorShape({});
    TF_RETURN_IF_ERROR(AddBags(bags, tensor_spec.slots, table, shape));
    if (spec.weighted) TF_RETURN_IF_ERROR(CheckWeightShapes(tensors, table));
  }
  *input = InputOf(tensors, bags);
  return AddDim(table.table->options().dim, shape);
}

tf::Status TableSteps::Read(tf::OpKernelConstruction* construction, int64_t num_tables) {
  TF_RETURN_IF_ERROR(construction->GetAttr("trained", &trained_));
  TF_RETURN_IF_ERROR(construction->GetAttr("optimizer", &optimizer_));
  int num_trained;
  TF_RETURN_IF_ERROR(construction->GetAttr("num_trained", &num_trained));
  const std::string op = construction->def().op();
  std::vector<bool> seen(num_tables, false);
  for (const int t : trained_) {
    if (t < 0 || t >= num_tables || seen[t]) {
      return tf::errors::InvalidArgument(op, ": `trained` must have distinct positions of ", num_tables,
                                         " tables; ", t, " is out of range or occurs twice");
    }
    seen[t] = true;
  }
  if (static_cast<int>(trained_.size()) != num_trained) {
    return tf::errors::InvalidArgument(op, ": ", num_trained, " hyper-parameter vectors for ",
                                       trained_.size(), " tables");
  }
  return tf::Status();
}

tf::Status TableSteps::Steps(tf::OpKernelContext* context, const GroupTables& tables,
                             std::vector<EngineStep>* steps) const {
  const int first_input = context->num_inputs() - static_cast<int>(trained_.size());
  for (size_t i = 0; i < trained_.size(); ++i) {
    const tf::Tensor& hyper = context->input(first_input + static_cast<int>(i));
    if (hyper.dims() != 1) {
      return tf::errors::InvalidArgument("Embedding variable '", tables.refs[trained_[i]].name(),
                                         "': hyper-parameters of shape ", hyper.shape().DebugString(),
                                         ", not [h]");
    }
    steps->push_back(
        {trained_[i], tables.tables[trained_[i]], {hyper.flat<float>().data(), hyper.NumElements()}});
  }
  return tf::Status();
}

}  // namespace sok
