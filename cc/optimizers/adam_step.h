#ifndef SOK_CC_OPTIMIZERS_ADAM_STEP_H_
#define SOK_CC_OPTIMIZERS_ADAM_STEP_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// One step of Adam on an element with a gradient (Kingma and Ba, 2015, in the "epsilon hat" form), with the
// operations of tf.compat.v1.train.AdamOptimizer on rows:
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g * g
//   w -= m * alpha / (sqrt(v) + epsilon)
// Where v overflows, it is inf from then on and the element stays where it is; v += (g^2 - v) * (1 - beta2),
// the form of TensorFlow's dense kernel, would be inf - inf in the next step. The product is taken from the
// left, as a session's graph optimizer orders it, and overflows no earlier than v does; where g * g comes
// first, as in Keras' optimizer, v is inf from |g| = 1.8e19 on. With epsilon 0, an element that has never had
// a gradient becomes NaN, 0 / 0, as in TensorFlow.
//
// Applied to the touched rows alone it is the lazy Adam.
struct AdamStep {
  static constexpr HyperParameter kHyper[] = {{"alpha", HyperRange::kFinite},
                                              {"beta1", HyperRange::kBelowOne},
                                              {"beta2", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr int kSlots = 2;
  static const char* SlotName(int slot) { return slot == 0 ? "m" : "v"; }
  static float SlotFill(const float* /*hyper*/, int /*slot*/) { return 0.0f; }

  explicit AdamStep(const float* hyper)
      : alpha(hyper[0]),
        beta1(hyper[1]),
        beta2(hyper[2]),
        gain1(1.0f - hyper[1]),
        gain2(1.0f - hyper[2]),
        epsilon(hyper[3]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    m = m * beta1 + g * gain1;
    v = v * beta2 + gain2 * g * g;
    w -= m * alpha / (sqrtf(v) + epsilon);
  }

  float alpha;
  float beta1;
  float beta2;
  float gain1;
  float gain2;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_STEP_H_
