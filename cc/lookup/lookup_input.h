// A lookup of one feature, for every engine: its constant part, its arrays in one step, and where its output
// and gradient are.
#ifndef SOK_CC_LOOKUP_LOOKUP_INPUT_H_
#define SOK_CC_LOOKUP_LOOKUP_INPUT_H_

#include <cstdint>

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

}  // namespace sok

#endif  // SOK_CC_LOOKUP_LOOKUP_INPUT_H_
