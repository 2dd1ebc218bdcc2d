// Slow, obvious PoolForward and GatherForward: one bag after the other, one column after the other, with the
// same operations in the same order, so that results agree bit for bit.
#ifndef SOK_CC_CPU_POOLING_TESTING_POOL_REFERENCE_H_
#define SOK_CC_CPU_POOLING_TESTING_POOL_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/lookup/lookup_input.h"

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

inline float SumInOrder(const std::vector<float>& terms) {
  float sum = 0.0f;
  for (float term : terms) sum += term;
  return sum;
}

// The first terms, at least two if there are two, and then the sum of each following eight.
inline float SumInEights(const std::vector<float>& terms) {
  size_t next = terms.size() % 8;
  if (next < 2) next = std::min<size_t>(next + 8, terms.size());
  float sum = SumInOrder({terms.begin(), terms.begin() + next});
  for (; next < terms.size(); next += 8) {
    sum += SumInOrder({terms.begin() + next, terms.begin() + next + 8});
  }
  return sum;
}

// As PoolForward; returns the output as a dense [bags, dim].
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
      std::vector<float> terms;
      for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
        terms.push_back(bag_weights[static_cast<size_t>(i - offsets[bag])] * rows[inverse[i]][c]);
      }
      const bool is_zero = terms.empty() || divisor == 0.0f;
      const bool multiplied = weights.empty() && terms.size() < 10;
      const float sum = weights.empty() ? SumInEights(terms) : SumInOrder(terms);
      out.push_back(is_zero ? 0.0f : multiplied ? sum * (1.0f / divisor) : sum / divisor);
    }
  }
  return out;
}

// As GatherForward; returns the output as a dense [occurrences, dim].
inline std::vector<float> GatherReference(Span<const float* const> rows, Span<const int32_t> inverse,
                                          int64_t dim) {
  std::vector<float> out;
  for (int32_t unique : inverse) out.insert(out.end(), rows[unique], rows[unique] + dim);
  return out;
}

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_TESTING_POOL_REFERENCE_H_
