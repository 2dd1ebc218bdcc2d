#ifndef SOK_CC_POOLING_DIVISOR_H_
#define SOK_CC_POOLING_DIVISOR_H_

#include <cmath>
#include <cstdint>

#include "cc/base/span.h"
#include "cc/pooling/combiner.h"
#include "cc/pooling/vector_math.h"

namespace sok {

// The divisor of the weighted sum of a bag of occurrences [begin, end) (see Combiner). Empty `weights` mean
// ones. Weights are added in order and in float, as TensorFlow does: whether weights of opposite signs cancel
// to exactly zero depends on it.
inline float BagDivisor(Combiner combiner, Span<const float> weights, int64_t begin, int64_t end) {
  if (combiner == Combiner::kSum) return 1.0f;
  float sum = 0.0f;
  if (weights.empty()) {
    sum = static_cast<float>(end - begin);
  } else if (combiner == Combiner::kMean) {
    for (int64_t i = begin; i < end; ++i) sum += weights[i];
  } else {
    for (int64_t i = begin; i < end; ++i) sum += weights[i] * weights[i];
  }
  return combiner == Combiner::kMean ? sum : std::sqrt(sum);
}

// Divides the sum of an unweighted bag of `rows` rows, with the rounding that PoolForward documents.
inline void DivideUnweighted(float divisor, int64_t rows, int64_t dim, float* sum) {
  if (divisor == 1.0f) return;
  rows < 10 ? Multiply(1.0f / divisor, dim, sum) : Divide(divisor, dim, sum);
}

// The factor by which the gradient of an unweighted bag of `rows` rows reaches each row, rounded once.
inline float UnweightedScale(Combiner combiner, int64_t rows) {
  const double count = static_cast<double>(rows);
  return combiner == Combiner::kSum    ? 1.0f
         : combiner == Combiner::kMean ? static_cast<float>(1.0 / count)
                                       : static_cast<float>(1.0 / std::sqrt(count));
}

}  // namespace sok

#endif  // SOK_CC_POOLING_DIVISOR_H_
