#ifndef SOK_CC_OPTIMIZERS_ADAMAX_H_
#define SOK_CC_OPTIMIZERS_ADAMAX_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// AdaMax (Kingma and Ba, 2015, section 7.1) as Keras' legacy Adamax has it, on the touched rows:
//   m = beta1 * m + (1 - beta1) * g
//   v = max(beta2 * v, |g|)
//   w -= alpha * m / (v + epsilon)
// alpha is the bias-corrected rate of the step, learning_rate / (1 - beta1^t). An element that has never had
// a gradient stays where it is when epsilon is 0.
struct Adamax {
  static constexpr HyperParameter kHyper[] = {{"alpha", HyperRange::kFinite},
                                              {"beta1", HyperRange::kBelowOne},
                                              {"beta2", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr int kSlots = 2;
  static const char* SlotName(int slot) { return slot == 0 ? "m" : "v"; }
  static float SlotFill(const float* /*hyper*/, int /*slot*/) { return 0.0f; }

  explicit Adamax(const float* hyper)
      : alpha(hyper[0]), beta1(hyper[1]), beta2(hyper[2]), epsilon(hyper[3]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    m = m * beta1 + g * (1.0f - beta1);
    const float decayed = v * beta2;
    const float size = fabsf(g);
    v = decayed < size ? size : decayed;
    w -= m / (v + epsilon) * alpha;
  }

  float alpha;
  float beta1;
  float beta2;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAMAX_H_
