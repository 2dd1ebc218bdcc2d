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

void WalkMissedSteps(const AdamHistory& history, int64_t t0, float epsilon, int64_t dim, float* w, float* m,
                     float* v) {
  constexpr int64_t kBlock = 64;
  const int64_t gap = history.steps() - t0;
  const int64_t walked = std::min(gap, history.loop_horizon());
  const double beta1 = history.beta1();
  const double r = std::sqrt(static_cast<double>(history.beta2()));
  // Avoids inf * 0 for an infinite root.
  const double least_power2 = r > 0.0 ? std::numeric_limits<double>::min() : 0.0;
  const float decay1 = MomentDecay(history.beta1_power(gap));
  const float decay2 = MomentDecay(history.beta2_power(gap));
  for (int64_t first = 0; first < dim; first += kBlock) {
    const int64_t count = std::min(kBlock, dim - first);
    double root[kBlock];
    double sum[kBlock] = {};  // of alpha_j beta1^j / (s r^j + epsilon)
    for (int64_t c = 0; c < count; ++c) root[c] = std::sqrt(static_cast<double>(v[first + c]));
    double power1 = 1.0;
    double power2 = 1.0;
    for (int64_t j = 1; j <= walked; ++j) {
      power1 *= beta1;
      power2 = std::max(power2 * r, least_power2);
      const double rate = history.alphas()[static_cast<size_t>(t0 + j - 1)] * power1;
      for (int64_t c = 0; c < count; ++c) sum[c] += rate / (root[c] * power2 + epsilon);
    }
    for (int64_t c = first; c < first + count; ++c) {
      w[c] = static_cast<float>(w[c] - m[c] * sum[c - first]);
      m[c] = DecayedMoment(m[c], history.beta1(), decay1);
      v[c] = DecayedMoment(v[c], history.beta2(), decay2);
    }
  }
}

}  // namespace sok
