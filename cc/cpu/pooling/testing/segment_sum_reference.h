// A slow, obvious backward pass. Gradients are summed in the same order as in SegmentSum and agree bit for
// bit; gradients with respect to weights are in double precision.
#ifndef SOK_CC_CPU_POOLING_TESTING_SEGMENT_SUM_REFERENCE_H_
#define SOK_CC_CPU_POOLING_TESTING_SEGMENT_SUM_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// The gradient of each of `num_unique` ids, [num_unique, dim].
inline std::vector<float> SegmentSumReference(Span<const int32_t> inverse, int64_t num_unique,
                                              Span<const float* const> grad_rows, Span<const float> scales,
                                              int64_t dim) {
  std::vector<float> out(static_cast<size_t>(num_unique * dim), 0.0f);
  std::vector<float> piece(out.size(), 0.0f);
  std::vector<int64_t> in_piece(static_cast<size_t>(num_unique), 0);
  const auto end_piece = [&](int64_t u) {
    for (int64_t i = u * dim; i < (u + 1) * dim; ++i) {
      out[static_cast<size_t>(i)] += piece[static_cast<size_t>(i)];
      piece[static_cast<size_t>(i)] = 0.0f;
    }
    in_piece[static_cast<size_t>(u)] = 0;
  };
  for (int64_t p = 0; p < inverse.size(); ++p) {
    const int64_t u = inverse[p];
    for (int64_t c = 0; c < dim; ++c) {
      piece[static_cast<size_t>(u * dim + c)] += (scales.empty() ? 1.0f : scales[p]) * grad_rows[p][c];
    }
    if (++in_piece[static_cast<size_t>(u)] == 256) end_piece(u);
  }
  for (int64_t u = 0; u < num_unique; ++u) end_piece(u);
  return out;
}

// d loss / d weights[i], where grad[b, c], [bags, dim], is the gradient of bag b's output: the output is
// f(w) = sum_k w_k r_k / D(w), and f' is taken by the quotient rule.
inline std::vector<double> WeightGradientsReference(Combiner combiner, Span<const float* const> rows,
                                                    Span<const int32_t> inverse, Span<const int64_t> offsets,
                                                    Span<const float> weights, Span<const float> grad,
                                                    int64_t dim) {
  std::vector<double> out(static_cast<size_t>(inverse.size()), 0.0);
  for (int64_t bag = 0; bag + 1 < offsets.size(); ++bag) {
    double sum = 0.0;
    double squares = 0.0;
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      sum += weights[i];
      squares += static_cast<double>(weights[i]) * weights[i];
    }
    const double divisor = combiner == Combiner::kSum    ? 1.0
                           : combiner == Combiner::kMean ? sum
                                                         : std::sqrt(squares);
    if (divisor == 0.0) continue;
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      const double slope = combiner == Combiner::kSum    ? 0.0
                           : combiner == Combiner::kMean ? 1.0
                                                         : weights[i] / divisor;
      for (int64_t c = 0; c < dim; ++c) {
        double pooled = 0.0;
        for (int64_t k = offsets[bag]; k < offsets[bag + 1]; ++k) {
          pooled += static_cast<double>(weights[k]) * rows[inverse[k]][c];
        }
        const double derivative = (rows[inverse[i]][c] * divisor - pooled * slope) / (divisor * divisor);
        out[static_cast<size_t>(i)] += grad[bag * dim + c] * derivative;
      }
    }
  }
  return out;
}

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_TESTING_SEGMENT_SUM_REFERENCE_H_
