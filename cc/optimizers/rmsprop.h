#ifndef SOK_CC_OPTIMIZERS_RMSPROP_H_
#define SOK_CC_OPTIMIZERS_RMSPROP_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// RMSProp on the touched rows, as in tf.compat.v1.train.RMSPropOptimizer and in Keras' legacy RMSprop with
// momentum; epsilon is inside the root.
//   ms = rho * ms + (1 - rho) * g^2
//   mom = momentum * mom + learning_rate / sqrt(ms + epsilon) * g
//   w -= mom
// The division comes first, as in TensorFlow: learning_rate * g may overflow where the quotient times g does
// not.
struct Rmsprop : RuleDefaults {
  static constexpr const char* kName = "rmsprop";
  static constexpr const char* kSource = "TensorFlow's RMSPropOptimizer; Keras' legacy RMSprop with momentum";
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"rho", HyperRange::kUnit},
                                              {"momentum", HyperRange::kNonNegative},
                                              {"epsilon", HyperRange::kNonNegative},
                                              {"initial_ms", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"rms", /*fill=*/"initial_ms"}, {"momentum"}};
  static constexpr float kSamples[][5] = {{0.01f, 0.9f, 0.8f, 1e-10f, 1.0f}};

  explicit Rmsprop(const float* hyper)
      : learning_rate(hyper[0]), rho(hyper[1]), momentum(hyper[2]), epsilon(hyper[3]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& ms, float& mom) const {
    ms = ms * rho + g * g * (1.0f - rho);
    mom = mom * momentum + learning_rate / sqrtf(ms + epsilon) * g;
    w -= mom;
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& ms = row.slots[0][c];
      double& mom = row.slots[1][c];
      ms = hyper[1] * ms + (1.0 - hyper[1]) * row.g[c] * row.g[c];
      mom = hyper[2] * mom + hyper[0] * row.g[c] / sqrt(ms + hyper[3]);
      row.w[c] -= mom;
    }
  }

  float learning_rate;
  float rho;
  float momentum;
  float epsilon;
};

// The centered form, with the root of the gradients' variance; a third slot holds their mean.
//   mg = rho * mg + (1 - rho) * g
//   mom = momentum * mom + learning_rate / sqrt(ms - mg^2 + epsilon) * g
// If rounding makes ms - mg^2 + epsilon negative, the variance counts as 0; TensorFlow's step would give NaN.
struct RmspropCentered : Rmsprop {
  static constexpr const char* kName = "rmsprop_centered";
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"rms", /*fill=*/"initial_ms"}, {"momentum"}, {"mg"}};
  static constexpr float kSamples[][5] = {{0.01f, 0.9f, 0.8f, 1e-2f, 1.0f}};

  using Rmsprop::Rmsprop;

  SOK_HOST_DEVICE void operator()(float g, float& w, float& ms, float& mom, float& mg) const {
    ms = ms * rho + g * g * (1.0f - rho);
    mg = mg * rho + g * (1.0f - rho);
    const float variance = ms - mg * mg + epsilon;
    mom = mom * momentum + learning_rate / sqrtf(variance < 0.0f ? epsilon : variance) * g;
    w -= mom;
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& ms = row.slots[0][c];
      double& mom = row.slots[1][c];
      double& mg = row.slots[2][c];
      ms = hyper[1] * ms + (1.0 - hyper[1]) * row.g[c] * row.g[c];
      mg = hyper[1] * mg + (1.0 - hyper[1]) * row.g[c];
      mom = hyper[2] * mom + hyper[0] * row.g[c] / sqrt(ms - mg * mg + hyper[3]);
      row.w[c] -= mom;
    }
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_RMSPROP_H_
