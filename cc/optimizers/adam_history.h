#ifndef SOK_CC_OPTIMIZERS_ADAM_HISTORY_H_
#define SOK_CC_OPTIMIZERS_ADAM_HISTORY_H_

#include <math.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/optimizers/adam.h"
#include "cc/optimizers/decay.h"

namespace sok {

// The tables behind Powers. They stay valid until this is moved or destroyed.
class PowerTable {
 public:
  explicit PowerTable(double base)
      : low_(Powers::kRow), high_(Powers::kRow), beyond_(std::pow(base, Powers::kRow * Powers::kRow)) {
    for (int64_t i = 0; i < Powers::kRow; ++i) {
      low_[i] = std::pow(base, static_cast<double>(i));
      high_[i] = std::pow(base, static_cast<double>(i * Powers::kRow));
    }
  }

  // Valid until this is moved or destroyed.
  Powers powers() const { return {low_.data(), high_.data(), beyond_}; }
  double operator()(int64_t n) const { return powers()(n); }

 private:
  std::vector<double> low_;
  std::vector<double> high_;
  double beyond_;
};

// A table with which the steps that a row has missed under the exact Adam are summed without a loop over
// them.
//
// A step without a gradient scales the moments, m by beta1 and v by beta2, and moves the weight. With
// r = sqrt(beta2), q = beta1 / r and s = sqrt(v), the j-th missed step moves it by
//   alpha_j m beta1^j / (s r^j + eps)  =  m / (s + eps) * alpha_j q^j / (1 + y d_j),
//   y = eps / (s + eps) in [0, 1],  d_j = r^-j - 1 >= 0.
// All missed steps together move it by m / (s + eps) * G(y) with
//   G(y) = sum over j of alpha_j q^j / (1 + y d_j).
// G is a function of y alone, the same for all rows that were last current at the same step, whatever m, v
// and eps are. Only y differs between elements.
//
// G is smooth on [0, 1], so it is kept as the polynomial that agrees with it at N Chebyshev points. A missed
// step adds to the polynomial's coefficients alpha_j times numbers that depend only on the lag j. AdamSeries
// is the table of these numbers. The relative error of interpolating 1 / (1 + y d) at Chebyshev points of
// [0, 1] is at most
//   E_j = 1 / T_N(2 / x_j - 1),  x_j = 1 - r^j,
// with T_N the Chebyshev polynomial, since 1 + y d is linear in y with its root at 1 - 1 / x_j. For
// beta1 = 0.9, beta2 = 0.999 and N = 4 that is 3e-13 at j = 5, 5e-8 at j = 100 and 2e-6 at j = 263, where q^j
// is 1e-12. With a constant alpha the error of the whole sum is 1e-10, which is error_bound().
//
// Steps with q^j below kNegligible are left out: those at lags beyond horizon().
class AdamSeries {
 public:
  // For 0 <= beta1 < 1 and 0 <= beta2 <= 1. Picks the fewest terms (4 or 8) that keep error_bound() below
  // kTolerance. terms() is 0 if neither does (for beta1 = 0.9, a beta2 of 0.95), or if the horizon would
  // exceed kMaxHorizon (q near or above 1); missed steps must then be taken one by one.
  AdamSeries(double beta1, double beta2);

  int terms() const { return terms_; }
  int64_t horizon() const { return horizon_; }
  // A bound of the sum's relative error with a constant alpha, for the worst y.
  double error_bound() const { return error_bound_; }
  // What a step with alpha = 1 at lag j, 1 <= j <= horizon(), adds to the coefficients of 1, y, y^2 ...
  const double* increments(int64_t lag) const { return increments_.data() + (lag - 1) * terms_; }

  static constexpr double kNegligible = 1e-12;
  static constexpr double kTolerance = 5e-8;
  static constexpr int64_t kMaxHorizon = 1 << 14;
  static constexpr int kMaxTerms = 8;

 private:
  void FillIncrements(double q, double r);

  int terms_ = 0;
  int64_t horizon_ = 0;
  double error_bound_ = 0.0;
  std::vector<double> increments_;  // [horizon, terms]
};

// The past steps of the exact Adam, for rows that have missed some of them. For every step t0 of the history
// it keeps the coefficients of G (see AdamSeries), summed over the steps t0 + 1 ... steps(). A step updates
// the coefficients of the last horizon() values of t0; older ones are final. So a step costs horizon() *
// terms() multiplications, and 8 * terms() + 4 bytes. If AdamSeries has no series for the betas, only the
// alphas are kept.
//
// beta1 and beta2 are constant. Append needs exclusive access; the const functions are thread-safe.
class AdamHistory {
 public:
  // A table catches up all rows and starts a new history after this many steps.
  static constexpr int64_t kMaxSteps = 1 << 17;

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
