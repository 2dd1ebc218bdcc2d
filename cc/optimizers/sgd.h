#ifndef SOK_CC_OPTIMIZERS_SGD_H_
#define SOK_CC_OPTIMIZERS_SGD_H_

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Gradient descent: w -= learning_rate * g.
struct Sgd : RuleDefaults {
  static constexpr const char* kName = "sgd";
  static constexpr const char* kSource = "TensorFlow's GradientDescentOptimizer";
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {};
  static constexpr float kSamples[][1] = {{0.1f}};

  explicit Sgd(const float* hyper) : learning_rate(hyper[0]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w) const { w -= learning_rate * g; }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) row.w[c] -= hyper[0] * row.g[c];
  }

  float learning_rate;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_SGD_H_
