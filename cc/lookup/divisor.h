// How every engine adds up the rows of a bag and the gradients of an id, so that they have the same bits.
#ifndef SOK_CC_LOOKUP_DIVISOR_H_
#define SOK_CC_LOOKUP_DIVISOR_H_

#include <math.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/base/span.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// The occurrences of an id are summed in pieces of this many: each piece in order from its first occurrence,
// and then the sums of the pieces in order. Engines may sum pieces in parallel, which keeps many threads busy
// when one id has most of a batch's occurrences.
constexpr int64_t kSegmentPiece = 256;

// What a weight adds to the sum from which the divisor is computed. Not for kSum.
SOK_HOST_DEVICE float DivisorTerm(Combiner combiner, float weight) {
  return combiner == Combiner::kMean ? weight : weight * weight;
}

// The divisor of a bag with this sum of DivisorTerms. They are added in order and in float, as TensorFlow
// does: whether weights of opposite signs cancel to exactly zero depends on it.
SOK_HOST_DEVICE float DivisorOfSum(Combiner combiner, float sum) {
  return combiner == Combiner::kSum ? 1.0f : combiner == Combiner::kMean ? sum : sqrtf(sum);
}

// The divisor of a bag of `rows` rows without weights.
SOK_HOST_DEVICE float UnweightedDivisor(Combiner combiner, int64_t rows) {
  return DivisorOfSum(combiner, static_cast<float>(rows));
}

// The divisor of the weighted sum of a bag of occurrences [begin, end) (see Combiner). Empty `weights` mean
// ones.
inline float BagDivisor(Combiner combiner, Span<const float> weights, int64_t begin, int64_t end) {
  if (combiner == Combiner::kSum) return 1.0f;
  if (weights.empty()) return UnweightedDivisor(combiner, end - begin);
  float sum = 0.0f;
  for (int64_t i = begin; i < end; ++i) sum += DivisorTerm(combiner, weights[i]);
  return DivisorOfSum(combiner, sum);
}

// How many of the rows of a bag without weights are added one by one, before those in groups of eight.
SOK_HOST_DEVICE int64_t RowsBeforeEights(int64_t rows) {
  const int64_t over = rows % 8 < 2 ? rows % 8 + 8 : rows % 8;
  return rows < over ? rows : over;
}

// Whether the sum of an unweighted bag of `rows` rows is multiplied by 1 / divisor, as PoolForward documents,
// or divided.
SOK_HOST_DEVICE bool MultipliesByInverse(int64_t rows) { return rows < 10; }

// The factor by which the gradient of an unweighted bag of `rows` rows reaches each row, rounded once.
SOK_HOST_DEVICE float UnweightedScale(Combiner combiner, int64_t rows) {
  const double count = static_cast<double>(rows);
  return combiner == Combiner::kSum    ? 1.0f
         : combiner == Combiner::kMean ? static_cast<float>(1.0 / count)
                                       : static_cast<float>(1.0 / sqrt(count));
}

// The factor by which the gradient of a bag reaches the row of an occurrence with this weight.
SOK_HOST_DEVICE float WeightedScale(float weight, float divisor) {
  return divisor == 0.0f ? 0.0f : weight / divisor;
}

// The gradient of an occurrence's weight: `dot` is the product of the bag's gradient and the row, `pooled`
// the sum of weights times dots over the bag, divided by the divisor, which is not 0. Not for kSum, where the
// gradient is `dot`.
SOK_HOST_DEVICE float WeightGradient(Combiner combiner, float weight, float dot, float pooled,
                                     float divisor) {
  // The derivative of the divisor by the weight: 1 for the mean, w_i / D for the root of the sum of squares.
  const float growth = combiner == Combiner::kMean ? 1.0f : weight / divisor;
  return (dot - growth * pooled) / divisor;
}

}  // namespace sok

#endif  // SOK_CC_LOOKUP_DIVISOR_H_
