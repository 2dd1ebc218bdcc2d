#ifndef SOK_CC_CPU_DENSE_TABLES_COMBINE_ROWS_H_
#define SOK_CC_CPU_DENSE_TABLES_COMBINE_ROWS_H_

#include <cstdint>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/dense_tables/train_rows.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// The ids of one input. Id i belongs to feature i % sizes.size(), and must be in [0, the feature's size). The
// rows of a feature follow those of the features before it.
struct InputIds {
  Span<const int64_t> ids;
  Span<const int64_t> sizes;  // at least one, at least 1 each
  int64_t base = 0;           // the key of the first feature's id 0
};

// Writes the key of each id to `keys`, which is as long as the ids; an id out of its feature gets any key.
// Returns whether all ids are in their features. If not, *worst becomes the one farthest out: the lowest if
// one is negative, else the highest of those that are too large.
bool MakeKeys(const InputIds& input, Span<int64_t> keys, int64_t* worst);

// One more than the largest key of a good id of such an input; 2^63 - 1 if that overflows.
int64_t KeysEnd(Span<const int64_t> sizes, int64_t base);

// Working memory, kept from one call to the next. Not thread-safe.
struct MergeIdsScratch {
  RowDeduplicator deduplicator;
  std::vector<int64_t> keys;
};

// *distinct = the distinct values of scratch->keys, in order of their first occurrence; places[i] = the
// position of key i among them. `places` is as long as the keys. Keys of good ids are in [0, limit). Errors
// are those of Deduplicator::Run.
Status MergeKeys(Executor& executor, MergeIdsScratch* scratch, int64_t limit, std::vector<int64_t>* distinct,
                 Span<int32_t> places);

// How the rows of one input's occurrences become its output. The functions that make it throw std::bad_alloc
// or std::length_error if there are too many bags for the memory.
struct InputBags {
  int64_t occurrences = 0;
  // Whether rows are pooled. If not, the output has the row of each occurrence.
  bool pools = false;
  Combiner combiner = Combiner::kSum;
  // Bag b has the occurrences [offsets[b], offsets[b + 1]) of the input; from 0 to `occurrences`.
  std::vector<int64_t> offsets;

  // Rows of the output.
  int64_t outputs() const { return pools ? static_cast<int64_t>(offsets.size()) - 1 : occurrences; }
};

// Bags of equal size; `shape` is that of the ids, [..., ids per bag]. With one id per bag pooling changes
// nothing, and they are not pooled. InvalidArgument for no shape, a negative size, or more than 2^63 - 1 ids.
StatusOr<InputBags> FixedBags(Span<const int64_t> shape, Combiner combiner, bool pools);
// Bags given by their row splits, which start at 0 and never decrease; InvalidArgument otherwise.
StatusOr<InputBags> SplitBags(Span<const int64_t> splits, Combiner combiner, bool pools);
// `count` bags, given by the bag of each occurrence: in [0, count) and never decreasing; InvalidArgument
// otherwise.
StatusOr<InputBags> NumberedBags(int64_t count, Span<const int64_t> bags, Combiner combiner);
// Writes an input's output, row-major [bags.outputs(), dim]. Occurrence i reads rows[places[i]]; `places` has
// an entry for each occurrence of this input. Rounds like PoolForward.
void CombineRows(Executor& executor, Span<const float* const> rows, Span<const int32_t> places,
                 const InputBags& bags, int64_t dim, float* out);

// The backward pass of CombineRows for all inputs that read the same rows. Members throw std::bad_alloc if
// memory runs out. Not thread-safe.
class RowGradientSums {
 public:
  // Adds an input; its occurrences follow those of the inputs before. `gradients` is the gradient of its
  // output, row-major [bags.outputs(), dim], which Sum reads. `dim` is the same for all inputs.
  void Add(const InputBags& bags, const float* gradients, int64_t dim);
  // out[r], row-major [num_rows, dim], becomes the gradient of row r: the sum over the occurrences that read
  // it, in order. `places` has an entry for each occurrence of all inputs. Forgets the inputs.
  void Sum(Executor& executor, Span<const int32_t> places, int64_t num_rows, int64_t dim, float* out);

 private:
  std::vector<const float*> of_occurrences_;
  std::vector<float> scales_;  // empty while all are 1
  Segments segments_;
};

}  // namespace sok

#endif  // SOK_CC_CPU_DENSE_TABLES_COMBINE_ROWS_H_
