#ifndef SOK_CC_OPTIMIZERS_ADAM_MISSED_STEPS_H_
#define SOK_CC_OPTIMIZERS_ADAM_MISSED_STEPS_H_

#include <math.h>

#include <cstdint>

#include "cc/optimizers/adam_catch_up.h"
#include "cc/optimizers/adam_history.h"

namespace sok {

// The catch-up of the elements of a row that was last current at step t0 of `history`, t0 < history.steps(),
// by the first kTerms <= history.terms() terms: all of them, or one where epsilon is 0.
template <int kTerms>
AdamCatchUp<kTerms> MakeAdamCatchUp(const AdamHistory& history, int64_t t0, float epsilon) {
  AdamCatchUp<kTerms> catch_up;
  const double* coefficients = history.coefficients(t0);
  for (int c = 0; c < kTerms; ++c) catch_up.coefficients[c] = static_cast<float>(coefficients[c]);
  const int64_t gap = history.steps() - t0;
  catch_up.epsilon = epsilon;
  catch_up.decay1 = MomentDecay(history.beta1_power(gap));
  catch_up.decay2 = MomentDecay(history.beta2_power(gap));
  return catch_up;
}

// Whether `catch_up` would make NaN of a moment that is inf in a row [w | m | v]: a power of beta that is no
// float counts as 0, and steps taken one by one leave inf what it is.
template <int kTerms>
bool LosesInfinity(const AdamCatchUp<kTerms>& catch_up, const float* record, int64_t dim) {
  const auto any_infinite = [dim](const float* moments) {
    int infinite = 0;
    for (int64_t c = 0; c < dim; ++c) infinite |= fabsf(moments[c]) == INFINITY;
    return infinite != 0;
  };
  return (catch_up.decay1 == 0.0f && any_infinite(record + dim)) ||
         (catch_up.decay2 == 0.0f && any_infinite(record + 2 * dim));
}

// Brings the `dim` elements of such a row up to date by walking the missed steps one by one, in double
// precision, for a history whose terms() is 0 and for a row that LosesInfinity by its catch-up.
void WalkMissedSteps(const AdamHistory& history, int64_t t0, float epsilon, int64_t dim, float* w, float* m,
                     float* v);

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_MISSED_STEPS_H_
