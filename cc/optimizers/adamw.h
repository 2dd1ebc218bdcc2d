#ifndef SOK_CC_OPTIMIZERS_ADAMW_H_
#define SOK_CC_OPTIMIZERS_ADAMW_H_

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
struct AdamW : AdamStep {
  static constexpr const char* kName = "adamw";
  static constexpr const char* kSource =
      "Loshchilov and Hutter, 2019, on the touched rows; DeepRec's AdamWOptimizer";
  static constexpr HyperParameter kHyper[] = {{"alpha", HyperRange::kFinite},
                                              {"beta1", HyperRange::kBelowOne},
                                              {"beta2", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative},
                                              {"weight_decay", HyperRange::kUnit}};
  static constexpr float kSamples[][5] = {{0.01f, 0.9f, 0.999f, 1e-8f, 0.01f},
                                          {0.01f, 0.5f, 0.9f, 1e-3f, 0.0f}};

  explicit AdamW(const float* hyper) : AdamStep(hyper), weight_decay(hyper[4]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    w -= weight_decay * w;
    AdamStep::operator()(g, w, m, v);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) row.w[c] *= 1.0 - hyper[4];
    AdamStep::Reference(hyper, row);
  }

  float weight_decay;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAMW_H_
