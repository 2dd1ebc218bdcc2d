#ifndef SOK_CC_OPTIMIZERS_ADADELTA_H_
#define SOK_CC_OPTIMIZERS_ADADELTA_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// Adadelta (Zeiler, 2012) with the arithmetic of TensorFlow's SparseApplyAdadelta, which
// tf.compat.v1.train.AdadeltaOptimizer and Keras' legacy Adadelta both run; on the touched rows:
//   a = rho * a + (1 - rho) * g^2
//   step = sqrt(u + epsilon) / sqrt(a + epsilon) * g
//   w -= learning_rate * step
//   u = rho * u + (1 - rho) * step^2
struct Adadelta {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"rho", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr int kSlots = 2;
  static const char* SlotName(int slot) { return slot == 0 ? "accumulator" : "accumulated_update"; }
  static float SlotFill(const float* /*hyper*/, int /*slot*/) { return 0.0f; }

  explicit Adadelta(const float* hyper) : learning_rate(hyper[0]), rho(hyper[1]), epsilon(hyper[2]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a, float& u) const {
    a = a * rho + g * g * (1.0f - rho);
    const float step = sqrtf(u + epsilon) / sqrtf(a + epsilon) * g;
    w -= step * learning_rate;
    u = u * rho + step * step * (1.0f - rho);
  }

  float learning_rate;
  float rho;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADADELTA_H_
