#include "sok_ops/kernels/lookup_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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
  if (indices.dims() != 2 || indices.dim_size(0) != nnz || indices.dim_size(1) != 2) {
    return InvalidShape(table, "sparse ids have indices of shape ", Shape(indices), ", not [", nnz,
                        ", 2]: ids are [bags, any]");
  }
  if (dense_shape.dims() != 1 || dense_shape.NumElements() != 2) {
    return InvalidShape(table, "sparse ids have a dense_shape of shape ", Shape(dense_shape), ", not [2]");
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

Status CheckPlaces(const tf::Tensor& of_ids, const tf::Tensor& of_weights, const TableRef& table) {
  if (of_ids.shape() != of_weights.shape()) {
    return InvalidValue(table, "the places of its weights have shape ", Shape(of_weights),
                        ", and those of its ids ", Shape(of_ids));
  }
  const int64_t* ids = of_ids.flat<int64_t>().data();
  const int64_t* weights = of_weights.flat<int64_t>().data();
  const int64_t count = of_ids.NumElements();
  const int64_t at = std::mismatch(ids, ids + count, weights).first - ids;
  if (at == count) return OkStatus();
  return InvalidValue(table, "its weights are not at the places of its ids: number ", at, " of those is ",
                      weights[at], " where the ids have ", ids[at]);
}

Status CheckWeights(const LookupTensors& tensors, const TableRef& table) {
  const tf::Tensor& weights = *tensors.weights;
  if (weights.dims() != 1 || weights.NumElements() != tensors.ids->NumElements()) {
    return InvalidValue(table, "weights of shape ", Shape(weights), " for ", tensors.ids->NumElements(),
                        " ids");
  }
  if (tensors.places != nullptr) {
    const tf::Tensor& of_ids = tensors.indices != nullptr ? *tensors.indices : *tensors.row_splits;
    SOK_RETURN_IF_ERROR(CheckPlaces(of_ids, *tensors.places, table));
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

// Writes the `count` values to `to` that `order` says, or the first ones where it says nothing. int32 keys
// extend their sign, uint32 keys do not.
template <typename T, typename U>
void CopyInOrder(const T* values, const std::vector<int64_t>& order, int64_t count, U* to) {
  if (order.empty()) {
    std::copy_n(values, count, to);
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<U>(values[order[i]]);
}

void CopyIds(const tf::Tensor& ids, const Lookup& lookup, int64_t* to) {
  switch (ids.dtype()) {
    case tf::DT_INT32:
      return CopyInOrder(ids.flat<int32_t>().data(), lookup.order, lookup.count, to);
    case tf::DT_UINT32:
      return CopyInOrder(ids.flat<uint32_t>().data(), lookup.order, lookup.count, to);
    default:
      return CopyInOrder(ids.flat<int64_t>().data(), lookup.order, lookup.count, to);
  }
}

// Takes the ids whose weight is not above zero out of the bags.
void DropWithoutWeight(Span<const float> weights, Lookup* lookup) {
  const int64_t kept =
      std::count_if(weights.begin(), weights.end(), [](float weight) { return weight > 0.0f; });
  if (kept == lookup->count) return;
  std::vector<int64_t> order;
  order.reserve(kept);
  int64_t begin = 0;
  for (int64_t bag = 0; bag < lookup->num_bags(); ++bag) {
    const int64_t end = lookup->offsets[bag + 1];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t given = lookup->order.empty() ? i : lookup->order[i];
      if (weights[given] > 0.0f) order.push_back(given);
    }
    lookup->offsets[bag + 1] = static_cast<int64_t>(order.size());
    begin = end;
  }
  lookup->order = std::move(order);
  lookup->count = kept;
}

// Whether the ids are as many as the bags, and stand one in each, in order.
bool IsOneEach(const LookupTensors& tensors) {
  const int64_t nnz = tensors.ids->NumElements();
  if (NumBags(tensors) != nnz) return false;
  const bool sparse = tensors.indices != nullptr;
  const tf::Tensor& places = sparse ? *tensors.indices : *tensors.row_splits;
  const int64_t* bag = places.flat<int64_t>().data();
  const int64_t stride = sparse ? places.dim_size(1) : 1;
  const int64_t ends = sparse ? nnz : nnz + 1;
  bool in_order = true;
  for (int64_t i = 0; i < ends; ++i) in_order &= bag[i * stride] == i;
  return in_order;
}

// Checks and translates the bags and weights of a lookup.
Status ReadBags(const LookupSpec& spec, const LookupTensors& tensors, const TableRef& table, Lookup* lookup) {
  if (spec.pooled && !spec.weighted && !spec.keeps_bags && IsOneEach(tensors)) {
    // All combiners give the one row itself.
    lookup->pooled = false;
    return OkStatus();
  }
  if (spec.layout == IdLayout::kSparse) SOK_RETURN_IF_ERROR(SparseBags(tensors, table, lookup));
  if (spec.layout == IdLayout::kRagged) SOK_RETURN_IF_ERROR(RaggedBags(tensors, table, lookup));
  if (!spec.weighted) return OkStatus();
  SOK_RETURN_IF_ERROR(CheckWeights(tensors, table));
  const float* weights = tensors.weights->flat<float>().data();
  if (spec.positive_weights_only) DropWithoutWeight({weights, lookup->count}, lookup);
  lookup->weights.resize(lookup->count);
  CopyInOrder(weights, lookup->order, lookup->count, lookup->weights.data());
  return OkStatus();
}

// work(), with an error that names the variable where memory does not suffice: the numbers of bags and ids
// are the user's, and so is what the memory for them comes to.
template <typename Work>
Status WithinMemoryOf(const TableRef& table, const Work& work) {
  const Status status = WithinMemory(work);
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return ResourceExhausted(Message(table, "not enough memory for its bags and ids"));
}

// Reads an attribute of one flag for each lookup; where it is empty, all are false.
tf::Status OptionalFlags(tf::OpKernelConstruction* construction, const char* name, size_t lookups,
                         std::vector<bool>* flags) {
  TF_RETURN_IF_ERROR(construction->GetAttr(name, flags));
  if (flags->empty()) flags->assign(lookups, false);
  return flags->size() == lookups ? tf::Status()
                                  : tf::errors::InvalidArgument("SokGroupLookup: ", flags->size(), " flags `",
                                                                name, "` for ", lookups, " lookups");
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
  std::vector<bool> positive_weights_only;
  std::vector<bool> placed;
  TF_RETURN_IF_ERROR(OptionalFlags(construction, "positive_weights_only", lookups, &positive_weights_only));
  TF_RETURN_IF_ERROR(OptionalFlags(construction, "placed", lookups, &placed));
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
    spec.positive_weights_only = positive_weights_only[l];
    spec.placed = placed[l];
    if ((combiners[l] == "none") == spec.pooled || (spec.weighted && !spec.pooled) ||
        (spec.placed && !spec.weighted) || (spec.positive_weights_only && !spec.weighted) || spec.slots < 0 ||
        spec.table < 0 || spec.table >= num_tables) {
      return tf::errors::InvalidArgument("SokGroupLookup: lookup ", l, " has layout '", layouts[l],
                                         "', combiner '", combiners[l], "', weights: ", spec.weighted,
                                         ", slots ", spec.slots, ", table ", spec.table, " of ", num_tables);
    }
    bags_needed += spec.bag_inputs();
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

namespace {

// Lays the ids of each table out: `first` of its lookups, and where they are copied to if they cannot be
// taken as they are.
Status PlaceIds(const std::vector<LookupTensors>& tensors, const std::vector<TableRef>& tables,
                std::vector<Lookup>* lookups, GroupIds* ids) {
  std::vector<int64_t> id_counts(tables.size(), 0);
  std::vector<const tf::Tensor*> as_they_are(tables.size(), nullptr);
  std::vector<int> lookup_counts(tables.size(), 0);
  for (size_t l = 0; l < lookups->size(); ++l) {
    Lookup& lookup = (*lookups)[l];
    lookup.first = id_counts[lookup.table];
    id_counts[lookup.table] += lookup.count;
    const bool is_only = ++lookup_counts[lookup.table] == 1;
    const bool fits = lookup.order.empty() && tensors[l].ids->dtype() == tf::DT_INT64;
    as_they_are[lookup.table] = is_only && fits ? tensors[l].ids : nullptr;
  }
  ids->views.resize(tables.size());
  ids->copies.resize(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    if (as_they_are[t] != nullptr) {
      ids->views[t] = {as_they_are[t]->flat<int64_t>().data(), id_counts[t]};
      continue;
    }
    SOK_RETURN_IF_ERROR(WithinMemoryOf(tables[t], [&] {
      ids->copies[t].resize(id_counts[t]);
      ids->views[t] = ids->copies[t];
      return OkStatus();
    }));
  }
  return OkStatus();
}

}  // namespace

Status ReadLookups(Executor& executor, const std::vector<LookupSpec>& specs,
                   const std::vector<LookupTensors>& tensors, const std::vector<TableRef>& tables,
                   LookupPlan* plan, GroupIds* ids) {
  std::vector<Lookup>& lookups = plan->lookups;
  lookups.resize(specs.size());
  // Ids without bags have nothing to read: not worth a second thread.
  InlineExecutor alone;
  const bool has_bags =
      std::any_of(specs.begin(), specs.end(), [](const LookupSpec& spec) { return spec.pooled; });
  Executor& for_bags = has_bags ? executor : alone;
  SOK_RETURN_IF_ERROR(ForEachPart(for_bags, specs.size(), [&](Executor& /*inner*/, int64_t l) {
    Lookup& lookup = lookups[l];
    lookup.offsets.clear();
    lookup.weights.clear();
    lookup.order.clear();
    lookup.table = specs[l].table;
    lookup.pooled = specs[l].pooled;
    lookup.combiner = specs[l].combiner;
    lookup.given = lookup.count = tensors[l].ids->NumElements();
    const TableRef& table = tables[lookup.table];
    return WithinMemoryOf(table, [&] { return ReadBags(specs[l], tensors[l], table, &lookup); });
  }));
  SOK_RETURN_IF_ERROR(PlaceIds(tensors, tables, &lookups, ids));
  const auto is_copied = [&](const Lookup& lookup) {
    return lookup.count > 0 && ids->views[lookup.table].data() == ids->copies[lookup.table].data();
  };
  if (std::none_of(lookups.begin(), lookups.end(), is_copied)) return OkStatus();
  return ForEachPart(executor, specs.size(), [&](Executor& /*inner*/, int64_t l) {
    const Lookup& lookup = lookups[l];
    if (is_copied(lookup)) CopyIds(*tensors[l].ids, lookup, ids->copies[lookup.table].data() + lookup.first);
    return OkStatus();
  });
}

}  // namespace sok
