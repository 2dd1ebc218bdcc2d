// Slow, obvious group lookups in double precision, with which tests compare the real ones.
#ifndef SOK_CC_LOOKUP_TESTING_GROUP_REFERENCE_H_
#define SOK_CC_LOOKUP_TESTING_GROUP_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "cc/lookup/lookup_input.h"

namespace sok {

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

#endif  // SOK_CC_LOOKUP_TESTING_GROUP_REFERENCE_H_
