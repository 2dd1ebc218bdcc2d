#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "cc/base/status.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/lookup/lookup_input.h"

namespace sok {
namespace {

// The indices of the ids, flattened, or their row splits.
Span<const int64_t> PlacesOfIds(const LookupSpec& spec, const LookupInput& input) {
  if (spec.layout == IdLayout::kSparse) return {input.indices, 2 * input.num_ids};
  return {input.row_splits, input.num_bags + 1};
}

Status CheckWeights(const Table& table, const LookupSpec& spec, const LookupInput& input) {
  if (input.weight_places != nullptr) {
    const Span<const int64_t> places = PlacesOfIds(spec, input);
    const int64_t* differs = std::mismatch(places.begin(), places.end(), input.weight_places).first;
    if (differs != places.end()) {
      const int64_t at = differs - places.begin();
      return WeightsAtOtherPlaces(table.options().name, spec.layout, at, input.weight_places[at], *differs);
    }
  }
  for (int64_t i = 0; i < input.num_ids; ++i) {
    if (!std::isfinite(input.weights[i])) return WeightNotFinite(table.options().name, i, input.weights[i]);
  }
  return OkStatus();
}

// Fills lookup->offsets from row_splits, which must begin with 0, not decrease, and end with the number of
// ids.
Status RaggedBags(const Table& table, const LookupInput& input, LookupBags* lookup) {
  const Span<const int64_t> splits(input.row_splits, input.num_bags + 1);
  const std::string& variable = table.options().name;
  if (splits[0] != 0) return RowSplitsBeginWith(variable, splits[0]);
  for (int64_t b = 1; b < splits.size(); ++b) {
    if (splits[b] < splits[b - 1]) return RowSplitsFall(variable, splits[b - 1], splits[b], b);
  }
  if (splits[input.num_bags] != input.num_ids) {
    return RowSplitsEndWith(variable, splits[input.num_bags], input.num_ids);
  }
  lookup->offsets.assign(splits.begin(), splits.end());
  return OkStatus();
}

// Fills lookup->offsets from the first column of the indices, and lookup->order if that column is not sorted.
Status SparseBags(const Table& table, const LookupInput& input, LookupBags* lookup) {
  const int64_t* const indices = input.indices;
  std::vector<int64_t>& offsets = lookup->offsets;
  offsets.assign(input.num_bags + 1, 0);
  bool sorted = true;
  for (int64_t i = 0; i < input.num_ids; ++i) {
    const int64_t bag = indices[2 * i];
    if (bag < 0 || bag >= input.num_bags) {
      return IndexBeyondBags(table.options().name, i, bag, input.num_bags);
    }
    sorted = sorted && (i == 0 || indices[2 * (i - 1)] <= bag);
    ++offsets[bag + 1];
  }
  for (int64_t b = 0; b < input.num_bags; ++b) offsets[b + 1] += offsets[b];
  if (sorted) return OkStatus();

  // A stable counting sort by bag: within a bag the ids keep the order in which they came.
  std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);
  lookup->order.resize(input.num_ids);
  for (int64_t i = 0; i < input.num_ids; ++i) lookup->order[next[indices[2 * i]]++] = i;
  return OkStatus();
}

// Writes `count` of the values to `to`: those at the positions in `order`, or the first ones if it is empty.
template <typename T, typename U>
void CopyInOrder(const T* values, const std::vector<int64_t>& order, int64_t count, U* to) {
  if (order.empty()) {
    std::copy_n(values, count, to);
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<U>(values[order[i]]);
}

void CopyIds(const LookupInput& input, const LookupBags& lookup, int64_t* to) {
  switch (input.key_type) {
    case KeyType::kInt32:
      return CopyInOrder(static_cast<const int32_t*>(input.ids), lookup.order, lookup.count, to);
    case KeyType::kUint32:
      return CopyInOrder(static_cast<const uint32_t*>(input.ids), lookup.order, lookup.count, to);
    case KeyType::kInt64:
      return CopyInOrder(static_cast<const int64_t*>(input.ids), lookup.order, lookup.count, to);
  }
}

// Removes the ids whose weight is not above zero from the bags.
void DropWithoutWeight(const float* weights, LookupBags* lookup) {
  const int64_t kept =
      std::count_if(weights, weights + lookup->count, [](float weight) { return weight > 0.0f; });
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

// Whether every bag has exactly one id, in order.
bool IsOneEach(const LookupSpec& spec, const LookupInput& input) {
  if (input.num_bags != input.num_ids) return false;
  const bool sparse = spec.layout == IdLayout::kSparse;
  const int64_t* const bag = sparse ? input.indices : input.row_splits;
  const int64_t stride = sparse ? 2 : 1;
  const int64_t ends = sparse ? input.num_ids : input.num_ids + 1;
  bool in_order = true;
  for (int64_t i = 0; i < ends; ++i) in_order &= bag[i * stride] == i;
  return in_order;
}

// Checks and translates the bags and weights of a lookup.
Status ReadBags(const Table& table, const LookupSpec& spec, const LookupInput& input, LookupBags* lookup) {
  lookup->table = spec.table;
  lookup->pooled = spec.pooled();
  lookup->combiner = spec.combiner;
  lookup->given = lookup->count = input.num_ids;
  lookup->offsets.clear();
  lookup->weights.clear();
  lookup->order.clear();
  if (spec.pooled() && !spec.weighted && !spec.keeps_bags && IsOneEach(spec, input)) {
    // Every combiner gives the row of the only id.
    lookup->pooled = false;
    return OkStatus();
  }
  if (spec.layout == IdLayout::kSparse) SOK_RETURN_IF_ERROR(SparseBags(table, input, lookup));
  if (spec.layout == IdLayout::kRagged) SOK_RETURN_IF_ERROR(RaggedBags(table, input, lookup));
  if (!spec.weighted) return OkStatus();
  SOK_RETURN_IF_ERROR(CheckWeights(table, spec, input));
  if (spec.positive_weights_only) DropWithoutWeight(input.weights, lookup);
  lookup->weights.resize(lookup->count);
  CopyInOrder(input.weights, lookup->order, lookup->count, lookup->weights.data());
  return OkStatus();
}

// Runs work(). If memory does not suffice, the error names the variable: the numbers of bags and ids, and so
// the memory for them, depend on the user's input.
template <typename Work>
Status WithinMemoryOf(const Table& table, const Work& work) {
  const Status status = WithinMemory(work);
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return NoMemoryForBags(table.options().name);
}

// Lays out the ids of each table: sets `first` of its lookups, and allocates a copy if the ids need one.
Status PlaceIds(Span<Table* const> tables, Span<const LookupInput> inputs, std::vector<LookupBags>* lookups,
                GroupIds* ids) {
  std::vector<int64_t> id_counts(tables.size(), 0);
  std::vector<const void*> as_they_are(tables.size(), nullptr);
  std::vector<int> lookup_counts(tables.size(), 0);
  for (size_t l = 0; l < lookups->size(); ++l) {
    LookupBags& lookup = (*lookups)[l];
    lookup.first = id_counts[lookup.table];
    id_counts[lookup.table] += lookup.count;
    const bool is_only = ++lookup_counts[lookup.table] == 1;
    const bool fits = lookup.order.empty() && inputs[l].key_type == KeyType::kInt64;
    as_they_are[lookup.table] = is_only && fits ? inputs[l].ids : nullptr;
  }
  ids->views.resize(tables.size());
  ids->copies.resize(tables.size());
  for (int64_t t = 0; t < tables.size(); ++t) {
    if (as_they_are[t] != nullptr) {
      ids->views[t] = {static_cast<const int64_t*>(as_they_are[t]), id_counts[t]};
      continue;
    }
    SOK_RETURN_IF_ERROR(WithinMemoryOf(*tables[t], [&] {
      ids->copies[t].resize(id_counts[t]);
      ids->views[t] = ids->copies[t];
      return OkStatus();
    }));
  }
  return OkStatus();
}

}  // namespace

Status BuildBags(Executor& executor, Span<Table* const> tables, Span<const LookupSpec> specs,
                 Span<const LookupInput> inputs, LookupPlan* plan, GroupIds* ids) {
  std::vector<LookupBags>& lookups = plan->lookups;
  lookups.resize(specs.size());
  // Lookups without bags have nothing to check, so they are not worth a second thread.
  InlineExecutor alone;
  const bool has_bags =
      std::any_of(specs.begin(), specs.end(), [](const LookupSpec& spec) { return spec.pooled(); });
  Executor& for_bags = has_bags ? executor : alone;
  SOK_RETURN_IF_ERROR(ForEachPart(for_bags, specs.size(), [&](Executor& /*inner*/, int64_t l) {
    const Table& table = *tables[specs[l].table];
    return WithinMemoryOf(table, [&] { return ReadBags(table, specs[l], inputs[l], &lookups[l]); });
  }));
  SOK_RETURN_IF_ERROR(PlaceIds(tables, inputs, &lookups, ids));
  const auto is_copied = [&](const LookupBags& lookup) {
    return lookup.count > 0 && ids->views[lookup.table].data() == ids->copies[lookup.table].data();
  };
  if (std::none_of(lookups.begin(), lookups.end(), is_copied)) return OkStatus();
  return ForEachPart(executor, specs.size(), [&](Executor& /*inner*/, int64_t l) {
    const LookupBags& lookup = lookups[l];
    if (is_copied(lookup)) CopyIds(inputs[l], lookup, ids->copies[lookup.table].data() + lookup.first);
    return OkStatus();
  });
}

}  // namespace sok
