#ifndef SOK_CC_OPTIMIZERS_NADAM_H_
#define SOK_CC_OPTIMIZERS_NADAM_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Nadam (Dozat, 2016) as in Keras' legacy optimizer for sparse gradients: the moments decay in every step for
// every row, while only touched rows' weights move.
//   m = beta1 * m,  v = beta2 * v,                       and for a touched row
//   m += (1 - beta1) * g
//   v += (1 - beta2) * g^2
//   w -= learning_rate * (gradient_weight * g + moment_weight * m) / (sqrt(v / v_correction) + epsilon)
// With the momentum schedule mu_t = beta1 * (1 - 0.5 * 0.96^(schedule_decay * t)) and the product P_t of
// mu_1 ... mu_t, step t has
//   gradient_weight = (1 - mu_t) / (1 - P_t)
//   moment_weight = mu_{t+1} / (1 - P_{t+1})
//   v_correction = 1 - beta2^t,
// which the caller computes. `decay` holds the factors of the row's moments: the betas to the power of the
// number of steps that the row has missed plus one.
struct Nadam : RuleDefaults {
  static constexpr const char* kName = "nadam";
  static constexpr const char* kSource = "Dozat, 2016; Keras' legacy Nadam";
  static constexpr UntouchedRows kUntouched = UntouchedRows::kSlotsDecay;
  static constexpr HyperParameter kHyper[] = {
      {"learning_rate", HyperRange::kFinite},   {"beta1", HyperRange::kUnit},
      {"beta2", HyperRange::kBelowOne},         {"epsilon", HyperRange::kNonNegative},
      {"gradient_weight", HyperRange::kFinite}, {"moment_weight", HyperRange::kFinite},
      {"v_correction", HyperRange::kPositive}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"m"}, {"v"}};
  static constexpr int kDecayOfSlot[] = {1, 2};
  static constexpr float kSamples[][7] = {{0.01f, 0.9f, 0.999f, 1e-7f, 0.7f, 0.6f, 0.01f}};

  explicit Nadam(const float* hyper)
      : learning_rate(hyper[0]),
        gain1(1.0f - hyper[1]),
        gain2(1.0f - hyper[2]),
        epsilon(hyper[3]),
        gradient_weight(hyper[4]),
        moment_weight(hyper[5]),
        v_correction(hyper[6]),
        decay{hyper[1], hyper[2]} {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    m = m * decay[0] + g * gain1;
    v = v * decay[1] + g * g * gain2;
    const float direction = g * gradient_weight + m * moment_weight;
    w -= learning_rate * direction / (sqrtf(v / v_correction) + epsilon);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& m = row.slots[0][c];
      double& v = row.slots[1][c];
      m = hyper[1] * m + (1.0 - hyper[1]) * row.g[c];
      v = hyper[2] * v + (1.0 - hyper[2]) * row.g[c] * row.g[c];
      const double direction = hyper[4] * row.g[c] + hyper[5] * m;
      row.w[c] -= hyper[0] * direction / (sqrt(v / hyper[6]) + hyper[3]);
    }
  }

  float learning_rate;
  float gain1;
  float gain2;
  float epsilon;
  float gradient_weight;
  float moment_weight;
  float v_correction;
  float decay[2];
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_NADAM_H_
