#include "cc/optimizers/adam_history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace sok {
namespace {

using Matrix = std::array<std::array<double, AdamSeries::kMaxTerms>, AdamSeries::kMaxTerms>;

double ChebyshevPoint(int i, int terms) {
  constexpr double kPi = 3.14159265358979323846;
  return 0.5 * (1.0 + std::cos((2 * i + 1) * kPi / (2 * terms)));
}

// Column i has the coefficients of the polynomial that is 1 at Chebyshev point i and 0 at the others.
Matrix LagrangeCoefficients(int terms) {
  Matrix result{};
  for (int i = 0; i < terms; ++i) {
    std::array<double, AdamSeries::kMaxTerms> product{};
    product[0] = 1.0;
    for (int k = 0, degree = 0; k < terms; ++k) {
      if (k == i) continue;
      const double point = ChebyshevPoint(k, terms);
      const double scale = 1.0 / (ChebyshevPoint(i, terms) - point);
      // product *= (y - point) * scale
      ++degree;
      for (int c = degree; c >= 0; --c) {
        product[c] = ((c > 0 ? product[c - 1] : 0.0) - point * product[c]) * scale;
      }
    }
    for (int c = 0; c < terms; ++c) result[c][i] = product[c];
  }
  return result;
}

// E_j in the header.
double InterpolationError(double x, int terms) {
  if (x <= 0.0) return 0.0;
  const double log_growth = terms * std::acosh(2.0 / x - 1.0);
  return log_growth > 700.0 ? 0.0 : 1.0 / std::cosh(log_growth);
}

// The sum of the terms' errors divided by a lower bound of the sum. The minimum of 1 / (1 + y d_j) is 1 -
// x_j, at y = 1.
double ErrorBound(double q, double r, int64_t horizon, int terms) {
  double errors = 0.0;
  double sum = 0.0;
  for (int64_t j = 1; j <= horizon; ++j) {
    const double weight = std::pow(q, j);
    const double x = 1.0 - std::pow(r, j);
    errors += weight * InterpolationError(x, terms);
    sum += weight * (1.0 - x);
  }
  return sum > 0.0 ? errors / sum : 0.0;
}

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

AdamSeries::AdamSeries(double beta1, double beta2) {
  const double r = std::sqrt(beta2);
  const double q = beta1 == 0.0 ? 0.0 : beta1 / r;
  if (!(q < 1.0)) return;
  // At least one lag, also for q = 0, whose increments are zeros.
  const double horizon = q == 0.0 ? 1.0 : std::ceil(std::log(kNegligible) / std::log(q));
  if (!(horizon <= kMaxHorizon)) return;
  horizon_ = static_cast<int64_t>(horizon);
  for (int terms : {4, 8}) {
    error_bound_ = ErrorBound(q, r, horizon_, terms);
    if (error_bound_ > kTolerance) continue;
    terms_ = terms;
    FillIncrements(q, r);
    return;
  }
}

void AdamSeries::FillIncrements(double q, double r) {
  const Matrix lagrange = LagrangeCoefficients(terms_);
  increments_.assign(static_cast<size_t>(horizon_ * terms_), 0.0);
  if (q == 0.0) return;
  for (int64_t j = 1; j <= horizon_; ++j) {
    const double weight = std::pow(q, j);
    const double d = std::pow(r, -j) - 1.0;
    double* out = increments_.data() + (j - 1) * terms_;
    for (int i = 0; i < terms_; ++i) {
      const double value = weight / (1.0 + ChebyshevPoint(i, terms_) * d);
      for (int c = 0; c < terms_; ++c) out[c] += lagrange[c][i] * value;
    }
  }
}

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
