#include "cc/optimizers/adam_history.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sok {
namespace {

// The lag beyond which missed steps are negligible: either q^j has vanished, as in the series, or m * beta1^j
// is zero for every float m, as it is in TensorFlow.
int64_t LoopHorizon(double beta1, int64_t series_horizon) {
  constexpr double kTakesAnyFloatToZero = 1e-84;
  if (beta1 == 0.0) return 1;  // one step with m = 0, which may give 0 / 0 = NaN
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

AdamHistoryView AdamHistory::view() const {
  return {beta1_,
          beta2_,
          steps_,
          series_.terms(),
          coefficients_.data(),
          alphas_.data(),
          loop_horizon_,
          beta1_powers_.powers(),
          beta2_powers_.powers()};
}

void WalkMissedSteps(const AdamHistoryView& history, int64_t t0, float epsilon, int64_t dim, float* w,
                     float* m, float* v) {
  constexpr int kBlock = 64;
  for (int64_t first = 0; first < dim; first += kBlock) {
    WalkMissedSteps<kBlock>(history, t0, epsilon, std::min<int64_t>(kBlock, dim - first), w + first,
                            m + first, v + first);
  }
}

}  // namespace sok
