// How a row catches up with the steps that it has missed under the exact Adam, from a history in host or
// device memory. Compiled by g++ and nvcc, so that all engines get the same bits.
#ifndef SOK_CC_OPTIMIZERS_ADAM_WALK_H_
#define SOK_CC_OPTIMIZERS_ADAM_WALK_H_

#include <math.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/optimizers/adam.h"
#include "cc/optimizers/decay.h"

namespace sok {

// What AdamHistory holds (see there), by pointers.
struct AdamHistoryView {
  float beta1 = 0.0f;
  float beta2 = 0.0f;
  int64_t steps = 0;
  int terms = 0;
  const double* coefficients = nullptr;  // [steps, terms]
  const float* alphas = nullptr;         // [steps]
  int64_t loop_horizon = 0;
  Powers beta1_powers;
  Powers beta2_powers;
};

// The catch-up of the elements of a row that was last current at step t0 < history.steps, by the first kTerms
// <= history.terms terms: all of them, or one where epsilon is 0.
template <int kTerms>
SOK_HOST_DEVICE AdamCatchUp<kTerms> MakeAdamCatchUp(const AdamHistoryView& history, int64_t t0,
                                                    float epsilon) {
  AdamCatchUp<kTerms> catch_up;
  const double* coefficients = history.coefficients + t0 * history.terms;
  for (int c = 0; c < kTerms; ++c) catch_up.coefficients[c] = static_cast<float>(coefficients[c]);
  const int64_t gap = history.steps - t0;
  catch_up.epsilon = epsilon;
  catch_up.decay1 = MomentDecay(history.beta1_powers(gap));
  catch_up.decay2 = MomentDecay(history.beta2_powers(gap));
  return catch_up;
}

// Whether such a catch-up would turn an infinite moment of an element into NaN: a power of beta too small for
// a float counts as 0, and inf * 0 is NaN, whereas single steps keep inf. The whole row then has to be walked
// step by step.
SOK_HOST_DEVICE bool LosesInfinity(float decay1, float decay2, float m, float v) {
  return (decay1 == 0.0f && fabsf(m) == INFINITY) || (decay2 == 0.0f && fabsf(v) == INFINITY);
}

// Brings `count` <= kElements elements of such a row up to date by walking the missed steps one by one, in
// double precision, for a history without terms and for a row that LosesInfinity.
template <int kElements>
SOK_HOST_DEVICE void WalkMissedSteps(const AdamHistoryView& history, int64_t t0, float epsilon, int64_t count,
                                     float* w, float* m, float* v) {
  constexpr double kSmallestNormalDouble = 2.2250738585072014e-308;
  const int64_t gap = history.steps - t0;
  const int64_t walked = gap < history.loop_horizon ? gap : history.loop_horizon;
  const double beta1 = history.beta1;
  const double r = sqrt(static_cast<double>(history.beta2));
  // Keeps a root that is inf from being multiplied by 0.
  const double least_power2 = r > 0.0 ? kSmallestNormalDouble : 0.0;
  const float decay1 = MomentDecay(history.beta1_powers(gap));
  const float decay2 = MomentDecay(history.beta2_powers(gap));
  double root[kElements];
  double sum[kElements];  // of alpha_j beta1^j / (s r^j + epsilon)
  for (int64_t c = 0; c < count; ++c) {
    root[c] = sqrt(static_cast<double>(v[c]));
    sum[c] = 0.0;
  }
  double power1 = 1.0;
  double power2 = 1.0;
  for (int64_t j = 1; j <= walked; ++j) {
    power1 *= beta1;
    power2 = power2 * r < least_power2 ? least_power2 : power2 * r;
    const double rate = history.alphas[t0 + j - 1] * power1;
    for (int64_t c = 0; c < count; ++c) sum[c] += rate / (root[c] * power2 + epsilon);
  }
  for (int64_t c = 0; c < count; ++c) {
    w[c] = static_cast<float>(w[c] - m[c] * sum[c]);
    m[c] = DecayedMoment(m[c], history.beta1, decay1);
    v[c] = DecayedMoment(v[c], history.beta2, decay2);
  }
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_WALK_H_
