// For tests of building bags: the arrays of lookups, the bags that they describe, and lookups with an error.
#ifndef SOK_CC_LOOKUP_TESTING_LOOKUP_ARRAYS_H_
#define SOK_CC_LOOKUP_TESTING_LOOKUP_ARRAYS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/lookup/lookup_input.h"

namespace sok {

// A lookup's arrays, as a caller holds them.
struct LookupArrays {
  LookupSpec spec;
  std::vector<int64_t> ids64;
  std::vector<int32_t> ids32;
  std::vector<uint32_t> ids_unsigned;
  KeyType key_type = KeyType::kInt64;
  int64_t num_bags = 0;
  std::vector<int64_t> indices;
  std::vector<int64_t> row_splits;
  std::vector<float> weights;
  std::vector<int64_t> weight_places;

  int64_t num_ids() const { return static_cast<int64_t>(ids64.size() + ids32.size() + ids_unsigned.size()); }

  int64_t id(int64_t i) const {
    return key_type == KeyType::kInt64   ? ids64[i]
           : key_type == KeyType::kInt32 ? int64_t{ids32[i]}
                                         : int64_t{ids_unsigned[i]};
  }

  LookupInput input() const {
    LookupInput input;
    input.ids = key_type == KeyType::kInt64   ? static_cast<const void*>(ids64.data())
                : key_type == KeyType::kInt32 ? static_cast<const void*>(ids32.data())
                                              : static_cast<const void*>(ids_unsigned.data());
    input.key_type = key_type;
    input.num_ids = num_ids();
    input.num_bags = num_bags;
    input.indices = indices.data();
    input.row_splits = row_splits.data();
    input.weights = weights.data();
    input.weight_places = weight_places.empty() ? nullptr : weight_places.data();
    return input;
  }
};

inline LookupArrays SparseArrays(int64_t num_bags, const std::vector<int64_t>& rows,
                                 const std::vector<int64_t>& ids) {
  LookupArrays arrays;
  arrays.spec.layout = IdLayout::kSparse;
  arrays.num_bags = num_bags;
  arrays.ids64 = ids;
  for (size_t i = 0; i < rows.size(); ++i) {
    arrays.indices.push_back(rows[i]);
    arrays.indices.push_back(static_cast<int64_t>(i));
  }
  return arrays;
}

inline LookupArrays RaggedArrays(const std::vector<int64_t>& row_splits, const std::vector<int64_t>& ids) {
  LookupArrays arrays;
  arrays.spec.layout = IdLayout::kRagged;
  arrays.num_bags = static_cast<int64_t>(row_splits.size()) - 1;
  arrays.row_splits = row_splits;
  arrays.ids64 = ids;
  return arrays;
}

inline LookupArrays DenseArrays(const std::vector<int64_t>& ids) {
  LookupArrays arrays;
  arrays.ids64 = ids;
  return arrays;
}

inline LookupArrays WithWeights(LookupArrays arrays, const std::vector<float>& weights) {
  arrays.spec.weighted = true;
  arrays.weights = weights;
  return arrays;
}

// One id of a bag: where the caller gave it, its value and its weight.
struct ReferenceId {
  int64_t given;
  int64_t id;
  float weight;
  bool operator==(const ReferenceId& other) const {
    return given == other.given && id == other.id && weight == other.weight;
  }
};
using ReferenceBagList = std::vector<std::vector<ReferenceId>>;

// The bags that the arrays describe, built id by id. Without bags, each id is a bag of its own.
inline ReferenceBagList ReferenceBags(const LookupArrays& arrays) {
  ReferenceBagList bags(arrays.spec.pooled() ? arrays.num_bags : arrays.num_ids());
  for (int64_t i = 0; i < arrays.num_ids(); ++i) {
    int64_t bag = i;
    if (arrays.spec.layout == IdLayout::kSparse) bag = arrays.indices[2 * i];
    if (arrays.spec.layout == IdLayout::kRagged) {
      bag = 0;
      while (arrays.row_splits[bag + 1] <= i) ++bag;
    }
    const float weight = arrays.spec.weighted ? arrays.weights[i] : 1.0f;
    if (arrays.spec.positive_weights_only && !(weight > 0.0f)) continue;
    bags[bag].push_back({i, arrays.id(i), weight});
  }
  return bags;
}

// A lookup of some hundred ids at most in one of `num_tables` tables, without errors.
inline LookupArrays RandomArrays(std::mt19937* random, int num_tables) {
  const auto below = [&](uint32_t n) { return static_cast<int64_t>((*random)() % n); };
  const int64_t num_bags = below(4) == 0 ? below(3) : below(60);
  std::vector<int64_t> rows;
  for (int64_t bag = 0; bag < num_bags; ++bag) rows.insert(rows.end(), below(5), bag);
  if (below(2) == 0) std::shuffle(rows.begin(), rows.end(), *random);
  std::vector<int64_t> splits = {0};
  for (int64_t bag = 0; bag < num_bags; ++bag) {
    splits.push_back(splits.back() + std::count(rows.begin(), rows.end(), bag));
  }
  const std::vector<int64_t> hostile = {0, -1, std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min()};
  std::vector<int64_t> ids(rows.size());
  for (int64_t& id : ids) id = below(5) == 0 ? hostile[below(4)] : below(50);
  const int64_t layout = below(3);
  LookupArrays arrays = layout == 0   ? SparseArrays(num_bags, rows, ids)
                        : layout == 1 ? RaggedArrays(splits, ids)
                                      : DenseArrays(ids);
  arrays.spec.table = static_cast<int>(below(num_tables));
  arrays.spec.combiner = below(2) == 0 ? Combiner::kMean : Combiner::kSqrtN;
  arrays.spec.keeps_bags = below(2) == 0;
  if (arrays.spec.pooled() && below(2) == 0) {
    std::vector<float> weights(ids.size());
    for (float& weight : weights) weight = static_cast<float>(below(9)) - 3.0f;
    arrays = WithWeights(std::move(arrays), weights);
    arrays.spec.positive_weights_only = below(2) == 0;
    if (below(2) == 0) arrays.weight_places = layout == 0 ? arrays.indices : arrays.row_splits;
  }
  arrays.key_type = below(2) == 0 ? KeyType::kInt64 : below(2) == 0 ? KeyType::kInt32 : KeyType::kUint32;
  if (arrays.key_type == KeyType::kInt32) arrays.ids32.assign(ids.begin(), ids.end());
  if (arrays.key_type == KeyType::kUint32) arrays.ids_unsigned.assign(ids.begin(), ids.end());
  if (arrays.key_type != KeyType::kInt64) arrays.ids64.clear();
  return arrays;
}

// A lookup from which no bags can be built, and the error that every engine must return for it.
struct BagsError {
  LookupArrays lookup;
  std::string text;  // of the error, an InvalidArgument, after "Lookup in embedding variable 'NAME': "
};

inline LookupArrays WithWeightPlaces(LookupArrays arrays, const std::vector<int64_t>& places) {
  arrays.weight_places = places;
  return arrays;
}

// Indices beyond the bags.
inline std::vector<BagsError> IndexErrors() {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  return {
      {SparseArrays(3, {0, 3, 9}, {1, 1, 1}), "index 1 of the sparse ids is in row 3 of 3"},
      {SparseArrays(3, {0, -1}, {1, 1}), "index 1 of the sparse ids is in row -1 of 3"},
      {SparseArrays(3, {kLeast, 1}, {1, 1}), "index 0 of the sparse ids is in row -9223372036854775808 of 3"},
      {SparseArrays(2, {0, kMost}, {1, 1}), "index 1 of the sparse ids is in row 9223372036854775807 of 2"},
      {SparseArrays(0, {0}, {1}), "index 0 of the sparse ids is in row 0 of 0"},
  };
}

// Row splits that do not rise from zero to the number of ids.
inline std::vector<BagsError> RowSplitErrors() {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  return {
      {RaggedArrays({1, 3}, {1, 2, 3}), "row_splits begin with 1, not 0"},
      {RaggedArrays({0, 2, 1, 3}, {1, 2, 3}), "row_splits fall from 2 to 1 at position 2"},
      {RaggedArrays({0, 5, 1, 4, 2, 9}, {1, 2, 3}), "row_splits fall from 5 to 1 at position 2"},
      {RaggedArrays({0, 2}, {1, 2, 3}), "row_splits end with 2, but there are 3 ids"},
      {RaggedArrays({0, 9}, {1, 2, 3}), "row_splits end with 9, but there are 3 ids"},
      {RaggedArrays({0}, {1}), "row_splits end with 0, but there are 1 ids"},
      {RaggedArrays({kLeast, 1}, {1}), "row_splits begin with -9223372036854775808, not 0"},
  };
}

// Weights that are not finite, or not at the places of the ids.
inline std::vector<BagsError> WeightErrors() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  const LookupArrays ragged = RaggedArrays({0, 2}, {1, 2});
  // Such a weight is an error even for an id that is left out of its bag.
  LookupArrays positive_only = WithWeights(SparseArrays(3, {2, 0, 1}, {1, 2, 3}), {1, 1, nan});
  positive_only.spec.positive_weights_only = true;
  return {
      {WithWeights(ragged, {1, kInfinity}), "weight 1 is inf"},
      {WithWeights(ragged, {-kInfinity, kInfinity}), "weight 0 is -inf"},
      {WithWeights(ragged, {nan, 1}), "weight 0 is nan"},
      {positive_only, "weight 2 is nan"},
      {WithWeightPlaces(WithWeights(SparseArrays(2, {0, 1}, {1, 2}), {1, 1}), {0, 0, 1, 7}),
       "the weights are not at the places of the ids: element 3 of their indices is 7, but that of the ids "
       "is 1"},
      {WithWeightPlaces(WithWeights(RaggedArrays({0, 1, 2}, {1, 2}), {1, 1}), {0, 2, 2}),
       "the weights are not at the places of the ids: element 1 of their row_splits is 2, but that of the "
       "ids is 1"},
  };
}

inline std::vector<BagsError> AllBagsErrors() {
  std::vector<BagsError> all = IndexErrors();
  for (const std::vector<BagsError>& more : {RowSplitErrors(), WeightErrors()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

// Eight lookups in tables 7 to 0. The fourth and all later ones have errors.
inline std::vector<LookupArrays> GroupWithErrors() {
  std::vector<LookupArrays> group;
  for (int l = 0; l < 8; ++l) {
    group.push_back(SparseArrays(1, {l < 3 ? 0 : l}, {1}));
    group.back().spec.table = 7 - l;
  }
  return group;
}
// The whole error of a group of tables named "table0" to "table7".
constexpr char kErrorOfGroup[] =
    "Lookup in embedding variable 'table4': index 0 of the sparse ids is in row 3 of 1";

// Slow, obvious group lookups in double precision, with which tests compare the real ones.

using ReferenceRows = std::map<int64_t, std::vector<double>>;  // id -> row

// One bag of ids, with a weight for each.
struct ReferenceBag {
  std::vector<int64_t> ids;
  std::vector<double> weights;
};

inline double ReferenceDivisor(Combiner combiner, const ReferenceBag& bag) {
  double sum = 0;
  double squares = 0;
  for (double weight : bag.weights) {
    sum += weight;
    squares += weight * weight;
  }
  return combiner == Combiner::kSum ? 1.0 : combiner == Combiner::kMean ? sum : std::sqrt(squares);
}

inline std::vector<double> ReferencePool(const ReferenceRows& rows, const ReferenceBag& bag,
                                         Combiner combiner, int64_t dim) {
  std::vector<double> out(dim, 0.0);
  const double divisor = ReferenceDivisor(combiner, bag);
  for (size_t i = 0; i < bag.ids.size() && divisor != 0; ++i) {
    for (int64_t d = 0; d < dim; ++d) out[d] += bag.weights[i] * rows.at(bag.ids[i])[d] / divisor;
  }
  return out;
}

// Adds the gradients of a bag's ids, for a gradient of the bag's output, to `grads`.
inline void ReferenceBackward(const ReferenceBag& bag, Combiner combiner, const std::vector<double>& gradient,
                              ReferenceRows* grads) {
  const double divisor = ReferenceDivisor(combiner, bag);
  for (size_t i = 0; i < bag.ids.size(); ++i) {
    std::vector<double>& sum = (*grads)[bag.ids[i]];
    sum.resize(gradient.size(), 0.0);
    if (divisor == 0) continue;
    for (size_t d = 0; d < gradient.size(); ++d) sum[d] += bag.weights[i] * gradient[d] / divisor;
  }
}

}  // namespace sok

#endif  // SOK_CC_LOOKUP_TESTING_LOOKUP_ARRAYS_H_
