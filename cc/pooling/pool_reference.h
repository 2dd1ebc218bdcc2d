// What PoolForward and GatherForward compute, written as plainly as possible: one bag after the other, one
// column after the other, with the same operations in the same order, so that results agree bit for bit.
#ifndef SOK_CC_POOLING_POOL_REFERENCE_H_
#define SOK_CC_POOLING_POOL_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/pooling/combiner.h"

namespace sok {

inline float DivisorReference(Combiner combiner, const std::vector<float>& bag_weights) {
  float sum = 0.0f;
  float squares = 0.0f;
  for (float weight : bag_weights) {
    sum += weight;
    squares += weight * weight;
  }
  if (combiner == Combiner::kMean) return sum;
  if (combiner == Combiner::kSqrtN) return std::sqrt(squares);
  return 1.0f;
}

// As PoolForward, but returns the output without gaps, [bags, dim].
inline std::vector<float> PoolReference(Span<const float* const> rows, Span<const int32_t> inverse,
                                        Span<const int64_t> offsets, Span<const float> weights,
                                        Combiner combiner, int64_t dim) {
  std::vector<float> out;
  for (int64_t bag = 0; bag + 1 < offsets.size(); ++bag) {
    std::vector<float> bag_weights;
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      bag_weights.push_back(weights.empty() ? 1.0f : weights[i]);
    }
    const float divisor = DivisorReference(combiner, bag_weights);
    for (int64_t c = 0; c < dim; ++c) {
      float sum = 0.0f;
      for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
        sum += bag_weights[static_cast<size_t>(i - offsets[bag])] * rows[inverse[i]][c];
      }
      out.push_back(bag_weights.empty() || divisor == 0.0f ? 0.0f : sum / divisor);
    }
  }
  return out;
}

// As GatherForward, without gaps, [occurrences, dim].
inline std::vector<float> GatherReference(Span<const float* const> rows, Span<const int32_t> inverse,
                                          int64_t dim) {
  std::vector<float> out;
  for (int32_t unique : inverse) out.insert(out.end(), rows[unique], rows[unique] + dim);
  return out;
}

}  // namespace sok

#endif  // SOK_CC_POOLING_POOL_REFERENCE_H_
