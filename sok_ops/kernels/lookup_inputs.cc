#include "sok_ops/kernels/lookup_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cc/base/within_memory.h"
#include "cc/group/parallel_parts.h"

namespace sok {

namespace tf = ::tensorflow;

namespace {

// Errors of a lookup name its variable.
template <typename... Args>
std::string Message(const TableRef& table, const Args&... args) {
  return StrCat("Lookup in embedding variable '", table.name(), "': ", args...);
}

// The error of tensors whose shapes are wrong, and of those whose values are.
template <typename... Args>
tf::Status InvalidShape(const TableRef& table, const Args&... args) {
  return tf::errors::InvalidArgument(Message(table, args...));
}
template <typename... Args>
Status InvalidValue(const TableRef& table, const Args&... args) {
  return InvalidArgument(Message(table, args...));
}

std::string Shape(const tf::Tensor& tensor) { return tensor.shape().DebugString(); }

int64_t NumBags(const LookupTensors& tensors) {
  if (tensors.row_splits != nullptr) return tensors.row_splits->NumElements() - 1;
  return tensors.dense_shape->flat<int64_t>()(0);
}

tf::Status CheckSparseShapes(const LookupTensors& tensors, const TableRef& table) {
  const int64_t nnz = tensors.ids->NumElements();
  const tf::Tensor& indices = *tensors.indices;
  const tf::Tensor& dense_shape = *tensors.dense_shape;
  if (indices.dims() != 2 || indices.dim_size(0) != nnz || indices.dim_size(1) < 1) {
    return InvalidShape(table, "sparse ids have indices of shape ", Shape(indices), ", not [", nnz,
                        ", rank]");
  }
  if (dense_shape.dims() != 1 || dense_shape.NumElements() != indices.dim_size(1)) {
    return InvalidShape(table, "sparse ids have a dense_shape of shape ", Shape(dense_shape),
                        ", but indices of rank ", indices.dim_size(1));
  }
  return tf::Status();
}

tf::Status CheckRaggedShapes(const LookupTensors& tensors, const TableRef& table) {
  const tf::Tensor& row_splits = *tensors.row_splits;
  if (row_splits.dims() != 1 || row_splits.NumElements() < 1) {
    return InvalidShape(table, "ragged ids have row_splits of shape ", Shape(row_splits), ", not [bags + 1]");
  }
  return tf::Status();
}

Status CheckWeights(const LookupTensors& tensors, const TableRef& table) {
  const tf::Tensor& weights = *tensors.weights;
  if (weights.dims() != 1 || weights.NumElements() != tensors.ids->NumElements()) {
    return InvalidValue(table, "weights of shape ", Shape(weights), " for ", tensors.ids->NumElements(),
                        " ids");
  }
  const auto values = weights.flat<float>();
  for (int64_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values(i))) return InvalidValue(table, "weight ", i, " is ", values(i));
  }
  return OkStatus();
}

// Fills lookup->offsets from row_splits, which must rise from 0 to the number of ids.
Status RaggedBags(const LookupTensors& tensors, const TableRef& table, Lookup* lookup) {
  const auto splits = tensors.row_splits->flat<int64_t>();
  const int64_t nnz = tensors.ids->NumElements();
  if (splits(0) != 0) return InvalidValue(table, "row_splits begin with ", splits(0), ", not 0");
  for (int64_t b = 1; b < splits.size(); ++b) {
    if (splits(b) < splits(b - 1)) {
      return InvalidValue(table, "row_splits fall from ", splits(b - 1), " to ", splits(b), " at position ",
                          b);
    }
  }
  if (splits(splits.size() - 1) != nnz) {
    return InvalidValue(table, "row_splits end with ", splits(splits.size() - 1), ", but there are ", nnz,
                        " ids");
  }
  lookup->offsets.assign(splits.data(), splits.data() + splits.size());
  return OkStatus();
}

// Fills lookup->offsets from the first column of the indices, and lookup->order where that does not rise.
Status SparseBags(const LookupTensors& tensors, const TableRef& table, Lookup* lookup) {
  const auto indices = tensors.indices->matrix<int64_t>();
  const int64_t nnz = tensors.ids->NumElements();
  const int64_t num_bags = NumBags(tensors);
  std::vector<int64_t>& offsets = lookup->offsets;
  offsets.assign(num_bags + 1, 0);
  bool sorted = true;
  for (int64_t i = 0; i < nnz; ++i) {
    const int64_t bag = indices(i, 0);
    if (bag < 0 || bag >= num_bags) {
      return InvalidValue(table, "index ", i, " of the sparse ids is in row ", bag, " of ", num_bags);
    }
    sorted = sorted && (i == 0 || indices(i - 1, 0) <= bag);
    ++offsets[bag + 1];
  }
  for (int64_t b = 0; b < num_bags; ++b) offsets[b + 1] += offsets[b];
  if (sorted) return OkStatus();

  // A stable counting sort by bag: within a bag the ids keep the order in which they came.
  std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);
  lookup->order.resize(nnz);
  for (int64_t i = 0; i < nnz; ++i) lookup->order[next[indices(i, 0)]++] = i;
  return OkStatus();
}

// Writes `from`, read in `order` where there is one, to `to`. int32 keys extend their sign, uint32 keys do
// not.
template <typename T, typename U>
void CopyInOrder(const tf::Tensor& from, const std::vector<int64_t>& order, U* to) {
  const T* values = from.flat<T>().data();
  if (order.empty()) {
    std::copy_n(values, from.NumElements(), to);
    return;
  }
  for (size_t i = 0; i < order.size(); ++i) to[i] = static_cast<U>(values[order[i]]);
}

void CopyIds(const tf::Tensor& ids, const std::vector<int64_t>& order, int64_t* to) {
  switch (ids.dtype()) {
    case tf::DT_INT32:
      return CopyInOrder<int32_t>(ids, order, to);
    case tf::DT_UINT32:
      return CopyInOrder<uint32_t>(ids, order, to);
    default:
      return CopyInOrder<int64_t>(ids, order, to);
  }
}

// Checks and translates the bags and weights of a lookup.
Status ReadBags(const LookupSpec& spec, const LookupTensors& tensors, const TableRef& table, Lookup* lookup) {
  if (spec.layout == IdLayout::kSparse) SOK_RETURN_IF_ERROR(SparseBags(tensors, table, lookup));
  if (spec.layout == IdLayout::kRagged) SOK_RETURN_IF_ERROR(RaggedBags(tensors, table, lookup));
  if (!spec.weighted) return OkStatus();
  SOK_RETURN_IF_ERROR(CheckWeights(tensors, table));
  lookup->weights.resize(lookup->count);
  CopyInOrder<float>(*tensors.weights, lookup->order, lookup->weights.data());
  return OkStatus();
}

// The ids of a table's only lookup: the tensor's own where they can be taken as they are, else in `copy`.
Span<const int64_t> OnlyIds(const tf::Tensor& ids, const std::vector<int64_t>& order,
                            std::vector<int64_t>* copy) {
  if (order.empty() && ids.dtype() == tf::DT_INT64) return {ids.flat<int64_t>().data(), ids.NumElements()};
  copy->resize(ids.NumElements());
  CopyIds(ids, order, copy->data());
  return *copy;
}

// work(), with an error that names the variable where memory does not suffice: the numbers of bags and ids
// are the user's, and so is what the memory for them comes to.
template <typename Work>
Status WithinMemoryOf(const TableRef& table, const Work& work) {
  const Status status = WithinMemory(work);
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return ResourceExhausted(Message(table, "not enough memory for its bags and ids"));
}

}  // namespace

tf::Status ReadLookupSpecs(tf::OpKernelConstruction* construction, std::vector<LookupSpec>* specs) {
  std::vector<int32_t> table_of;
  std::vector<std::string> layouts;
  std::vector<std::string> combiners;
  std::vector<bool> weighted;
  std::vector<int64_t> slots;
  int num_tables;
  int num_bags;
  int num_weights;
  TF_RETURN_IF_ERROR(construction->GetAttr("table_of", &table_of));
  TF_RETURN_IF_ERROR(construction->GetAttr("layouts", &layouts));
  TF_RETURN_IF_ERROR(construction->GetAttr("combiners", &combiners));
  TF_RETURN_IF_ERROR(construction->GetAttr("weighted", &weighted));
  TF_RETURN_IF_ERROR(construction->GetAttr("slots", &slots));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_tables", &num_tables));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_bags", &num_bags));
  TF_RETURN_IF_ERROR(construction->GetAttr("num_weights", &num_weights));
  const size_t lookups = layouts.size();
  if (table_of.size() != lookups || combiners.size() != lookups || weighted.size() != lookups ||
      slots.size() != lookups) {
    return tf::errors::InvalidArgument("SokGroupLookup: attributes of different lengths");
  }
  int bags_needed = 0;
  int weights_needed = 0;
  for (size_t l = 0; l < lookups; ++l) {
    LookupSpec spec;
    spec.layout = layouts[l] == "sparse"   ? IdLayout::kSparse
                  : layouts[l] == "ragged" ? IdLayout::kRagged
                                           : IdLayout::kDense;
    spec.table = table_of[l];
    spec.pooled = spec.layout != IdLayout::kDense;
    spec.combiner = combiners[l] == "mean"    ? Combiner::kMean
                    : combiners[l] == "sqrtn" ? Combiner::kSqrtN
                                              : Combiner::kSum;
    spec.weighted = weighted[l];
    spec.slots = slots[l];
    if ((combiners[l] == "none") == spec.pooled || (spec.weighted && !spec.pooled) || spec.slots < 0 ||
        spec.table < 0 || spec.table >= num_tables) {
      return tf::errors::InvalidArgument("SokGroupLookup: lookup ", l, " has layout '", layouts[l],
                                         "', combiner '", combiners[l], "', weights: ", spec.weighted,
                                         ", slots ", spec.slots, ", table ", spec.table, " of ", num_tables);
    }
    bags_needed += spec.layout == IdLayout::kSparse ? 2 : spec.layout == IdLayout::kRagged ? 1 : 0;
    weights_needed += spec.weighted ? 1 : 0;
    specs->push_back(spec);
  }
  if (bags_needed != num_bags || weights_needed != num_weights) {
    return tf::errors::InvalidArgument("SokGroupLookup: ", num_bags, " bag inputs and ", num_weights,
                                       " weights, where the lookups need ", bags_needed, " and ",
                                       weights_needed);
  }
  return tf::Status();
}

tf::Status OutputShape(const LookupSpec& spec, const LookupTensors& tensors, const TableRef& table,
                       tf::TensorShape* shape) {
  const int64_t dim = table.table->options().dim;
  if (tensors.ids->dtype() != table.resource->key_dtype()) {
    return InvalidShape(table, "ids are ", tf::DataTypeString(tensors.ids->dtype()),
                        ", but its key_dtype is ", tf::DataTypeString(table.resource->key_dtype()));
  }
  if (spec.layout == IdLayout::kDense) {
    *shape = tensors.ids->shape();
    return shape->AddDimWithStatus(dim);
  }
  if (tensors.ids->dims() != 1) {
    return InvalidShape(table, "the values of its ids have shape ", Shape(*tensors.ids), ", not [ids]");
  }
  TF_RETURN_IF_ERROR(spec.layout == IdLayout::kSparse ? CheckSparseShapes(tensors, table)
                                                      : CheckRaggedShapes(tensors, table));
  const int64_t bags = NumBags(tensors);
  if (bags < 0 || bags > std::numeric_limits<int32_t>::max()) {
    return InvalidShape(table, "the ids have ", bags, " rows, not between 0 and ",
                        std::numeric_limits<int32_t>::max());
  }
  *shape = tf::TensorShape({});
  if (spec.slots == 0) {
    TF_RETURN_IF_ERROR(shape->AddDimWithStatus(bags));
    return shape->AddDimWithStatus(dim);
  }
  if (bags % spec.slots != 0) {
    return InvalidShape(table, "the ids have ", bags, " rows, which is no multiple of slot_num ", spec.slots);
  }
  TF_RETURN_IF_ERROR(shape->AddDimWithStatus(bags / spec.slots));
  TF_RETURN_IF_ERROR(shape->AddDimWithStatus(spec.slots));
  return shape->AddDimWithStatus(dim);
}

Status ReadLookups(Executor& executor, const std::vector<LookupSpec>& specs,
                   const std::vector<LookupTensors>& tensors, const std::vector<TableRef>& tables,
                   LookupPlan* plan, GroupIds* ids) {
  std::vector<int64_t> id_counts(tables.size(), 0);
  std::vector<int> lookup_counts(tables.size(), 0);
  plan->lookups.resize(specs.size());
  for (size_t l = 0; l < specs.size(); ++l) {
    Lookup& lookup = plan->lookups[l];
    lookup.table = specs[l].table;
    lookup.pooled = specs[l].pooled;
    lookup.combiner = specs[l].combiner;
    lookup.count = tensors[l].ids->NumElements();
    lookup.first = id_counts[lookup.table];
    id_counts[lookup.table] += lookup.count;
    ++lookup_counts[lookup.table];
  }
  ids->views.resize(tables.size());
  ids->copies.resize(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    if (lookup_counts[t] == 1) continue;
    SOK_RETURN_IF_ERROR(WithinMemoryOf(tables[t], [&] {
      ids->copies[t].resize(id_counts[t]);
      ids->views[t] = ids->copies[t];
      return OkStatus();
    }));
  }
  return ForEachPart(executor, specs.size(), [&](Executor& /*inner*/, int64_t l) {
    Lookup& lookup = plan->lookups[l];
    const int t = lookup.table;
    return WithinMemoryOf(tables[t], [&] {
      SOK_RETURN_IF_ERROR(ReadBags(specs[l], tensors[l], tables[t], &lookup));
      if (lookup_counts[t] == 1) {
        ids->views[t] = OnlyIds(*tensors[l].ids, lookup.order, &ids->copies[t]);
      } else {
        CopyIds(*tensors[l].ids, lookup.order, ids->copies[t].data() + lookup.first);
      }
      return OkStatus();
    });
  });
}

}  // namespace sok
