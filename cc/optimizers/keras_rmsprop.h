#ifndef SOK_CC_OPTIMIZERS_KERAS_RMSPROP_H_
#define SOK_CC_OPTIMIZERS_KERAS_RMSPROP_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// RMSprop as in Keras' legacy optimizer without momentum: epsilon is outside the root, and the averages decay
// in every step for every row, while only touched rows' weights move.
//   rms = rho * rms,                          and for a touched row
//   rms += (1 - rho) * g^2
//   w -= learning_rate * g / (sqrt(rms) + epsilon)
// `decay` holds the factors of the row's slots: rho to the power of the number of steps that the row has
// missed plus one.
struct KerasRmsprop : RuleDefaults {
  static constexpr const char* kName = "keras_rmsprop";
  static constexpr const char* kSource = "Keras' legacy RMSprop without momentum";
  static constexpr UntouchedRows kUntouched = UntouchedRows::kSlotsDecay;
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"rho", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"rms"}};
  static constexpr int kDecayOfSlot[] = {1};
  static constexpr float kSamples[][3] = {{0.01f, 0.9f, 1e-3f}};

  explicit KerasRmsprop(const float* hyper)
      : learning_rate(hyper[0]), gain(1.0f - hyper[1]), epsilon(hyper[2]), decay{hyper[1], hyper[1]} {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& rms) const {
    rms = rms * decay[0] + g * g * gain;
    w -= learning_rate * g / (sqrtf(rms) + epsilon);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& rms = row.slots[0][c];
      rms = hyper[1] * rms + (1.0 - hyper[1]) * row.g[c] * row.g[c];
      row.w[c] -= hyper[0] * row.g[c] / (sqrt(rms) + hyper[2]);
    }
  }

  float learning_rate;
  float gain;
  float epsilon;
  float decay[2];
};

// The centered form, with the root of the gradients' variance.
//   mg = rho * mg + (1 - rho) * g
//   w -= learning_rate * g / (sqrt(rms - mg^2) + epsilon)
// If rounding makes rms - mg^2 negative, it counts as 0; Keras' step would give NaN.
struct KerasRmspropCentered : KerasRmsprop {
  static constexpr const char* kName = "keras_rmsprop_centered";
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"rms"}, {"mg"}};
  static constexpr int kDecayOfSlot[] = {1, 1};

  using KerasRmsprop::KerasRmsprop;

  SOK_HOST_DEVICE void operator()(float g, float& w, float& rms, float& mg) const {
    rms = rms * decay[0] + g * g * gain;
    mg = mg * decay[1] + g * gain;
    const float variance = rms - mg * mg;
    const float raised = variance + (variance < 0.0f ? -variance : 0.0f);
    w -= learning_rate * g / (sqrtf(raised) + epsilon);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& rms = row.slots[0][c];
      double& mg = row.slots[1][c];
      rms = hyper[1] * rms + (1.0 - hyper[1]) * row.g[c] * row.g[c];
      mg = hyper[1] * mg + (1.0 - hyper[1]) * row.g[c];
      row.w[c] -= hyper[0] * row.g[c] / (sqrt(rms - mg * mg) + hyper[2]);
    }
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_KERAS_RMSPROP_H_
