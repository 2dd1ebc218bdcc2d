// Lookups from which no bags can be built, and the error that every engine must return for each.
#ifndef SOK_CC_GROUP_TESTING_BAGS_ERRORS_H_
#define SOK_CC_GROUP_TESTING_BAGS_ERRORS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cc/group/testing/lookup_arrays.h"

namespace sok {

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

}  // namespace sok

#endif  // SOK_CC_GROUP_TESTING_BAGS_ERRORS_H_
