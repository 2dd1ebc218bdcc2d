#ifndef SOK_CC_OPTIMIZERS_ADAM_HISTORY_H_
#define SOK_CC_OPTIMIZERS_ADAM_HISTORY_H_

#include <math.h>

#include <cstdint>
#include <vector>

#include "cc/optimizers/adam.h"
#include "cc/optimizers/adam_series.h"
#include "cc/optimizers/adam_walk.h"
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

  // How the coefficients are summed. If it has no terms(), there are only alphas() and no coefficients.
  const AdamSeries& series() const { return series_; }
  // The rates of steps 1 ... steps().
  const std::vector<float>& alphas() const { return alphas_; }

  // Valid until the next Append. Row t0 of its coefficients belongs to rows that were last current at step
  // t0. Without terms, steps at lags beyond its loop_horizon move no row noticeably.
  AdamHistoryView view() const;

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

// Whether `catch_up` would turn an infinite moment of a row [w | m | v] into NaN; see LosesInfinity for an
// element.
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
// one; see WalkMissedSteps for some elements. For histories without terms, and for rows for which
// LosesInfinity is true.
void WalkMissedSteps(const AdamHistoryView& history, int64_t t0, float epsilon, int64_t dim, float* w,
                     float* m, float* v);

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_HISTORY_H_
