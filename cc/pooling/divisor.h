#ifndef SOK_CC_POOLING_DIVISOR_H_
#define SOK_CC_POOLING_DIVISOR_H_

#include <cmath>
#include <cstdint>

#include "cc/base/span.h"
#include "cc/pooling/combiner.h"

namespace sok {

// What the weighted sum of the bag of occurrences [begin, end) is divided by (see Combiner). Empty `weights`
// are all ones. Weights are added up in order and in float, as TensorFlow does: whether weights of both signs
// cancel to exactly zero depends on it.
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

}  // namespace sok

#endif  // SOK_CC_POOLING_DIVISOR_H_
