// A lookup of one feature, for every engine: its constant part, its arrays in one step, and where its output
// and gradient are.
#ifndef SOK_CC_LOOKUP_LOOKUP_INPUT_H_
#define SOK_CC_LOOKUP_LOOKUP_INPUT_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace sok {

// How the rows of a bag are combined: their weighted sum, divided by
//   kSum    1
//   kMean   the sum of the weights
//   kSqrtN  the square root of the sum of the squares of the weights
// as tf.nn.embedding_lookup_sparse defines them. A divisor of zero gives zeros.
enum class Combiner { kSum, kMean, kSqrtN };

// How the ids of a lookup are laid out.
enum class IdLayout {
  kSparse,  // ids with a [ids, 2] matrix of indices, whose first column is the bag; in any order
  kRagged,  // ids with [bags + 1] row splits
  kDense,   // ids alone: one output row for each id, nothing is pooled
};

enum class KeyType { kInt32, kUint32, kInt64 };

// The part of a lookup that is the same in every step.
struct LookupSpec {
  IdLayout layout = IdLayout::kDense;
  int table = 0;  // position in the group's tables
  Combiner combiner = Combiner::kSum;
  bool weighted = false;               // not of kDense
  bool positive_weights_only = false;  // ids whose weight is not above zero are left out of their bags
  bool keeps_bags = false;  // bags of one id each are pooled, too: an exchange of sums needs the bags

  bool pooled() const { return layout != IdLayout::kDense; }
};

// The ids, bags and weights of a lookup in one step. The pointers are to the memory of the engine that takes
// the input, and have to stay valid until its call returns.
struct LookupInput {
  const void* ids = nullptr;  // [num_ids] of key_type; int32 keys extend their sign, uint32 keys do not
  KeyType key_type = KeyType::kInt64;
  int64_t num_ids = 0;
  int64_t num_bags = 0;                 // kSparse and kRagged: below 2^31
  const int64_t* indices = nullptr;     // kSparse: [num_ids, 2]
  const int64_t* row_splits = nullptr;  // kRagged: [num_bags + 1]
  // On devices instead of indices or row splits, if not null: [num_bags + 1]. The indices are then in order.
  const int32_t* narrow_splits = nullptr;
  const float* weights = nullptr;  // weighted: [num_ids]
  // The weights' own indices or row splits, of the same length as those of the ids, which they must equal.
  // May be null.
  const int64_t* weight_places = nullptr;
};

// Where the output of a lookup goes: row b (a bag, or an id if the lookup is not pooled) at data + b *
// stride.
struct OutputRows {
  float* data = nullptr;
  int64_t stride = 0;  // floats, at least the table's dim
};

// The gradient of a lookup's output, laid out as the output.
struct GradientRows {
  const float* data = nullptr;
  int64_t stride = 0;
};

// The errors of a lookup's ids, bags and weights, with the same messages for all engines.

// Every message names the embedding variable.
template <typename... Args>
std::string LookupMessage(const std::string& variable, const Args&... args) {
  return StrCat("Lookup in embedding variable '", variable, "': ", args...);
}

// The index of sparse id `i` has `row` in its first column.
inline Status IndexBeyondBags(const std::string& variable, int64_t i, int64_t row, int64_t num_bags) {
  return InvalidArgument(
      LookupMessage(variable, "index ", i, " of the sparse ids is in row ", row, " of ", num_bags));
}

inline Status RowSplitsBeginWith(const std::string& variable, int64_t first) {
  return InvalidArgument(LookupMessage(variable, "row_splits begin with ", first, ", not 0"));
}

inline Status RowSplitsFall(const std::string& variable, int64_t from, int64_t to, int64_t position) {
  return InvalidArgument(
      LookupMessage(variable, "row_splits fall from ", from, " to ", to, " at position ", position));
}

inline Status RowSplitsEndWith(const std::string& variable, int64_t last, int64_t num_ids) {
  return InvalidArgument(
      LookupMessage(variable, "row_splits end with ", last, ", but there are ", num_ids, " ids"));
}

// Element `at` of the flattened indices, or of the row splits, differs between the weights and the ids.
inline Status WeightsAtOtherPlaces(const std::string& variable, IdLayout layout, int64_t at,
                                   int64_t of_weights, int64_t of_ids) {
  return InvalidArgument(LookupMessage(variable, "the weights are not at the places of the ids: element ", at,
                                       " of their ", layout == IdLayout::kSparse ? "indices" : "row_splits",
                                       " is ", of_weights, ", but that of the ids is ", of_ids));
}

inline Status WeightNotFinite(const std::string& variable, int64_t i, float weight) {
  return InvalidArgument(LookupMessage(variable, "weight ", i, " is ", weight));
}

// The ids that a group looks up in one table, and those that all ranks request of it, are numbered by 32-bit
// integers; on a GPU, those of all tables of a group together.
inline Status TooManyIds(const std::string& variable, int64_t ids) {
  return InvalidArgument(LookupMessage(variable, ids, " ids are too many for one step"));
}

// The numbers of bags and ids, and so the memory for them, depend on the user's input.
inline Status NoMemoryForBags(const std::string& variable) {
  return ResourceExhausted(LookupMessage(variable, "not enough memory for its bags and ids"));
}

}  // namespace sok

#endif  // SOK_CC_LOOKUP_LOOKUP_INPUT_H_
