#include "cc/optimizers/adam_history.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sok {
namespace {

// The lag from which on a term of the loop is nothing: either q^j has vanished, as in the series, or beta1^j
// takes every float m to zero, where TensorFlow's m is zero too.
int64_t LoopHorizon(double beta1, int64_t series_horizon) {
  constexpr double kTakesAnyFloatToZero = 1e-84;
  if (beta1 == 0.0) return 1;  // a step with m = 0, which makes NaN of 0 / 0
  const double vanished = std::ceil(std::log(kTakesAnyFloatToZero) / std::log(beta1));
  const int64_t lags = vanished < 1e18 ? static_cast<int64_t>(vanished) : std::numeric_limits<int64_t>::max();
  return series_horizon > 0 ? std::min(lags, series_horizon) : lags;
}

}  // namespace

AdamHistory::AdamHistory(float beta1, float beta2)
    : beta1_(beta1),
      beta2_(beta2),
      series_(beta1, beta2),
      beta1_powers_(beta1),
      beta2_powers_(beta2),
      loop_horizon_(LoopHorizon(beta1, series_.horizon())) {}

void AdamHistory::Append(float alpha) {
  ++steps_;
  alphas_.push_back(alpha);
  const int terms = series_.terms();
  if (terms == 0) return;
  coefficients_.resize(static_cast<size_t>(steps_ * terms), 0.0);
  const int64_t lags = std::min(steps_, series_.horizon());
  for (int64_t lag = 1; lag <= lags; ++lag) {
    const double* increments = series_.increments(lag);
    double* out = coefficients_.data() + (steps_ - lag) * terms;
    for (int c = 0; c < terms; ++c) out[c] += static_cast<double>(alpha) * increments[c];
  }
}

}  // namespace sok
