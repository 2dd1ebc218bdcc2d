// What becomes of the sum of a bag's rows. Only .cu files include this header.
#ifndef SOK_CUDA_POOLING_FINISH_SUM_H_
#define SOK_CUDA_POOLING_FINISH_SUM_H_

#include <cstdint>

#include "cc/pooling/divisor.h"
#include "cuda/rows/floats.h"

namespace sok {

// Divides the sum of the `rows` rows of a bag without weights, with the roundings that PoolForward documents.
template <int kWidth>
__device__ __forceinline__ void FinishUnweighted(Combiner combiner, int64_t rows, Floats<kWidth>* sum) {
  const float divisor = UnweightedDivisor(combiner, rows);
  if (divisor == 1.0f) return;
  MultipliesByInverse(rows) ? MultiplyBy(1.0f / divisor, sum) : DivideBy(divisor, sum);
}

// Divides the sum of the weighted rows of a bag, of which `divisor_sum` is the sum of DivisorTerms.
template <int kWidth>
__device__ __forceinline__ void FinishWeighted(Combiner combiner, float divisor_sum, Floats<kWidth>* sum) {
  const float divisor = DivisorOfSum(combiner, divisor_sum);
  if (divisor == 0.0f) {
    *sum = EqualFloats<kWidth>(0.0f);
  } else if (divisor != 1.0f) {
    DivideBy(divisor, sum);
  }
}

}  // namespace sok

#endif  // SOK_CUDA_POOLING_FINISH_SUM_H_
