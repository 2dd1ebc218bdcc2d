#ifndef SOK_CC_OPTIMIZERS_ADAM_MISSED_STEPS_H_
#define SOK_CC_OPTIMIZERS_ADAM_MISSED_STEPS_H_

#include <cstdint>

#include "cc/optimizers/adam_catch_up.h"
#include "cc/optimizers/adam_history.h"

namespace sok {

// A power of beta as a factor of moments: 0 where it is no normal float. What would be left of a moment is
// nothing beside any later gradient, and arithmetic on subnormal numbers is slow.
inline float MomentDecay(double power) {
  constexpr double kSmallestNormalFloat = 1.17549435e-38;
  return power < kSmallestNormalFloat ? 0.0f : static_cast<float>(power);
}

// The catch-up of the elements of a row that was last current at step t0 of `history`, t0 < history.steps(),
// for a history whose terms() is kTerms.
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

// Brings the `dim` elements of such a row up to date by walking the missed steps one by one, in double
// precision, for a history whose terms() is 0.
void WalkMissedSteps(const AdamHistory& history, int64_t t0, float epsilon, int64_t dim, float* w, float* m,
                     float* v);

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_MISSED_STEPS_H_
