#ifndef SOK_CC_OPTIMIZERS_SGD_H_
#define SOK_CC_OPTIMIZERS_SGD_H_

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// Gradient descent: w -= learning_rate * g.
struct Sgd {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite}};
  static constexpr int kSlots = 0;
  static const char* SlotName(int /*slot*/) { return ""; }
  static float SlotFill(const float* /*hyper*/, int /*slot*/) { return 0.0f; }

  explicit Sgd(const float* hyper) : learning_rate(hyper[0]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w) const { w -= learning_rate * g; }

  float learning_rate;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_SGD_H_
