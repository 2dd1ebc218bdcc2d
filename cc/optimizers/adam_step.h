#ifndef SOK_CC_OPTIMIZERS_ADAM_STEP_H_
#define SOK_CC_OPTIMIZERS_ADAM_STEP_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"
#include "cc/optimizers/quotient.h"

namespace sok {

// One step of Adam on an element with a gradient (Kingma and Ba, 2015, in the "epsilon hat" form, and with
// the operations of TensorFlow's ApplyAdam):
//   m += (g - m) * (1 - beta1)
//   v += (g^2 - v) * (1 - beta2)
//   w -= m * alpha / (sqrt(v) + epsilon)
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
      : alpha(hyper[0]), gain1(1.0f - hyper[1]), gain2(1.0f - hyper[2]), epsilon(hyper[3]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    m += (g - m) * gain1;
    v += (g * g - v) * gain2;
    w -= Quotient(m * alpha, sqrtf(v) + epsilon);
  }

  float alpha;
  float gain1;
  float gain2;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_STEP_H_
