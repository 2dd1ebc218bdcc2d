#include "sok_ops/kernels/lookup_tensors.h"

#include <limits>
#include <string>

#include "sok_ops/kernels/tf_versions.h"

namespace sok {

namespace tf = ::tensorflow;

namespace {

// Errors of a lookup name its variable.
template <typename... Args>
tf::Status Invalid(const TableRef& table, const Args&... args) {
  return tf::errors::InvalidArgument("Lookup in embedding variable '", table.name(), "': ", StrCat(args...));
}

std::string Shape(const tf::Tensor& tensor) { return tensor.shape().DebugString(); }

const tf::Tensor* NextInput(tf::OpKernelContext* context, int* next) { return &context->input((*next)++); }

tf::Status CheckSparseShapes(const LookupTensors& tensors, const TableRef& table) {
  const int64_t nnz = tensors.ids->NumElements();
  const tf::Tensor& indices = *tensors.indices;
  const tf::Tensor& dense_shape = *tensors.dense_shape;
  if (indices.dims() != 2 || indices.dim_size(0) != nnz || indices.dim_size(1) != 2) {
    return Invalid(table, "sparse ids have indices of shape ", Shape(indices), ", not [", nnz, ", 2]");
  }
  if (dense_shape.dims() != 1 || dense_shape.NumElements() != 2) {
    return Invalid(table, "sparse ids have a dense_shape of shape ", Shape(dense_shape), ", not [2]");
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
  input.indices = DataOf<int64_t>(tensors.indices);
  input.row_splits = DataOf<int64_t>(tensors.row_splits);
  input.weights = DataOf<float>(tensors.weights);
  input.weight_places = DataOf<int64_t>(tensors.places);
  return input;
}

}  // namespace

std::vector<LookupTensors> InputTensors(tf::OpKernelContext* context, const GroupAttributes& attributes) {
  int input = static_cast<int>(attributes.dims.size());
  int bags = input + static_cast<int>(attributes.specs.size());
  int dense_shapes = bags;
  for (const TensorSpec& spec : attributes.tensors) dense_shapes += spec.bag_inputs;
  int weights = dense_shapes + attributes.num_sparse();
  std::vector<LookupTensors> all;
  for (size_t l = 0; l < attributes.specs.size(); ++l) {
    const LookupSpec& spec = attributes.specs[l];
    LookupTensors tensors;
    tensors.ids = NextInput(context, &input);
    if (spec.layout == IdLayout::kSparse) {
      tensors.indices = NextInput(context, &bags);
      tensors.dense_shape = NextInput(context, &dense_shapes);
    } else if (spec.layout == IdLayout::kRagged) {
      tensors.row_splits = NextInput(context, &bags);
    }
    if (attributes.tensors[l].placed) tensors.places = NextInput(context, &bags);
    if (spec.weighted) tensors.weights = NextInput(context, &weights);
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

}  // namespace sok
