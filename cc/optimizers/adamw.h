#ifndef SOK_CC_OPTIMIZERS_ADAMW_H_
#define SOK_CC_OPTIMIZERS_ADAMW_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/adam.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019) on
// the touched rows, as in DeepRec's AdamWOptimizer and TensorFlow Addons' AdamW. The weight decays before the
// step, by weight_decay itself and not by its product with the learning rate.
//   w -= weight_decay * w
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g * g
//   w -= m * alpha / (sqrt(v) + epsilon)
// alpha is as for Adam, and so is the handling of inf and NaN (see AdamStep).
struct AdamW : RuleDefaults {
  static constexpr const char* kName = "adamw";
  static constexpr const char* kSource =
      "Loshchilov and Hutter, 2019, on the touched rows; DeepRec's AdamWOptimizer";
  static constexpr HyperParameter kHyper[] = {{"alpha", HyperRange::kFinite},
                                              {"beta1", HyperRange::kBelowOne},
                                              {"beta2", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative},
                                              {"weight_decay", HyperRange::kUnit}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"m"}, {"v"}};
  static constexpr float kSamples[][5] = {{0.01f, 0.9f, 0.999f, 1e-8f, 0.01f},
                                          {0.01f, 0.5f, 0.9f, 1e-3f, 0.0f}};

  explicit AdamW(const float* hyper) : adam(hyper), weight_decay(hyper[4]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    w -= weight_decay * w;
    adam(g, w, m, v);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& m = row.slots[0][c];
      double& v = row.slots[1][c];
      m = hyper[1] * m + (1.0 - hyper[1]) * row.g[c];
      v = hyper[2] * v + (1.0 - hyper[2]) * row.g[c] * row.g[c];
      row.w[c] = (1.0 - hyper[4]) * row.w[c] - hyper[0] * m / (sqrt(v) + hyper[3]);
    }
  }

  AdamStep adam;
  float weight_decay;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAMW_H_
