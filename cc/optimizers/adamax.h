#ifndef SOK_CC_OPTIMIZERS_ADAMAX_H_
#define SOK_CC_OPTIMIZERS_ADAMAX_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// AdaMax (Kingma and Ba, 2015, section 7.1) on the touched rows, as in Keras' legacy Adamax:
//   m = beta1 * m + (1 - beta1) * g
//   v = max(beta2 * v, |g|)
//   w -= alpha * m / (v + epsilon)
// alpha is the bias-corrected rate of the step, learning_rate / (1 - beta1^t), which the caller computes.
// With epsilon 0, an element of a touched row that has never had a gradient becomes NaN, 0 / 0.
struct Adamax : RuleDefaults {
  static constexpr const char* kName = "adamax";
  static constexpr const char* kSource = "Kingma and Ba, 2015, section 7.1; Keras' legacy Adamax";
  static constexpr HyperParameter kHyper[] = {{"alpha", HyperRange::kFinite},
                                              {"beta1", HyperRange::kBelowOne},
                                              {"beta2", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"m"}, {"v"}};
  static constexpr float kSamples[][4] = {{0.01f, 0.9f, 0.999f, 1e-7f}, {0.01f, 0.0f, 0.25f, 1e-2f}};

  explicit Adamax(const float* hyper)
      : alpha(hyper[0]), beta1(hyper[1]), beta2(hyper[2]), epsilon(hyper[3]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    m = m * beta1 + g * (1.0f - beta1);
    const float decayed = v * beta2;
    const float size = fabsf(g);
    v = decayed < size ? size : decayed;
    w -= m / (v + epsilon) * alpha;
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& m = row.slots[0][c];
      double& v = row.slots[1][c];
      m = hyper[1] * m + (1.0 - hyper[1]) * row.g[c];
      v = fmax(hyper[2] * v, fabs(row.g[c]));
      row.w[c] -= hyper[0] * m / (v + hyper[3]);
    }
  }

  float alpha;
  float beta1;
  float beta2;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAMAX_H_
