#ifndef SOK_CC_OPTIMIZERS_ADAM_HISTORY_H_
#define SOK_CC_OPTIMIZERS_ADAM_HISTORY_H_

#include <math.h>

#include <cstdint>
#include <vector>

#include "cc/optimizers/adam.h"
#include "cc/optimizers/adam_series.h"
#include "cc/optimizers/missed_steps.h"

namespace sok {

// The past steps of the exact Adam, for rows that have missed some of them. For every step t0 of the history
// it keeps the coefficients of G (see AdamSeries), summed over the steps t0 + 1 ... steps(). A step updates
// the coefficients of the last horizon() values of t0; older ones are final. So a step costs horizon() *
// terms() multiplications, and 8 * terms() + 4 bytes. If AdamSeries has no series for the betas, only the
// alphas are kept.
//
// beta1 and beta2 are constant. Append needs exclusive access; the const functions are thread-safe.
class AdamHistory {
 public:
  AdamHistory(float beta1, float beta2);

  float beta1() const { return beta1_; }
  float beta2() const { return beta2_; }
  // Steps taken so far; steps are numbered from 1, and a row that was current before step 1 has t0 = 0.
  int64_t steps() const { return steps_; }
  // Adds step steps() + 1, with its bias-corrected rate.
  void Append(float alpha);

  // As in AdamSeries; 0 if there are only alphas() and no coefficients.
  int terms() const { return series_.terms(); }
  // The terms() coefficients for a row last current at step t0 < steps().
  const double* coefficients(int64_t t0) const { return coefficients_.data() + t0 * terms(); }
  // The rates of steps 1 ... steps().
  const std::vector<float>& alphas() const { return alphas_; }
  // For a terms() of 0: steps beyond this lag move a weight by a negligible amount.
  int64_t loop_horizon() const { return loop_horizon_; }

  double beta1_power(int64_t n) const { return beta1_powers_(n); }
  double beta2_power(int64_t n) const { return beta2_powers_(n); }

 private:
  float beta1_;
  float beta2_;
  AdamSeries series_;
  PowerTable beta1_powers_;
  PowerTable beta2_powers_;
  int64_t loop_horizon_;
  int64_t steps_ = 0;
  std::vector<double> coefficients_;  // [steps, terms]
  std::vector<float> alphas_;
};

// The catch-up for the elements of a row last current at step t0 of `history`, t0 < history.steps(). It uses
// the first kTerms of history.terms() terms: all of them, or one if epsilon is 0.
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

// Whether `catch_up` would turn an infinite moment of a row [w | m | v] into NaN. It takes a power of beta
// below the normal floats as 0, while steps taken one by one leave inf as it is.
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

// Catches up the `dim` elements of a row last current at step t0 by going through the missed steps one by
// one, in double precision. For histories with terms() 0, and for rows for which LosesInfinity is true.
void WalkMissedSteps(const AdamHistory& history, int64_t t0, float epsilon, int64_t dim, float* w, float* m,
                     float* v);

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_HISTORY_H_
