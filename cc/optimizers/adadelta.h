#ifndef SOK_CC_OPTIMIZERS_ADADELTA_H_
#define SOK_CC_OPTIMIZERS_ADADELTA_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Adadelta (Zeiler, 2012) on the touched rows, with the arithmetic of TensorFlow's SparseApplyAdadelta.
// tf.compat.v1.train.AdadeltaOptimizer and Keras' legacy Adadelta both run it.
//   a = rho * a + (1 - rho) * g^2
//   step = sqrt(u + epsilon) / sqrt(a + epsilon) * g
//   w -= learning_rate * step
//   u = rho * u + (1 - rho) * step^2
struct Adadelta : RuleDefaults {
  static constexpr const char* kName = "adadelta";
  static constexpr const char* kSource =
      "Zeiler, 2012; TensorFlow's AdadeltaOptimizer and Keras' legacy Adadelta";
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"rho", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"accumulator"}, {"accumulated_update"}};
  static constexpr float kSamples[][3] = {{1.0f, 0.95f, 1e-3f}, {0.1f, 0.5f, 1e-8f}};

  explicit Adadelta(const float* hyper) : learning_rate(hyper[0]), rho(hyper[1]), epsilon(hyper[2]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a, float& u) const {
    a = a * rho + g * g * (1.0f - rho);
    const float step = sqrtf(u + epsilon) / sqrtf(a + epsilon) * g;
    w -= step * learning_rate;
    u = u * rho + step * step * (1.0f - rho);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& a = row.slots[0][c];
      double& u = row.slots[1][c];
      a = hyper[1] * a + (1.0 - hyper[1]) * row.g[c] * row.g[c];
      const double step = sqrt(u + hyper[2]) / sqrt(a + hyper[2]) * row.g[c];
      row.w[c] -= hyper[0] * step;
      u = hyper[1] * u + (1.0 - hyper[1]) * step * step;
    }
  }

  float learning_rate;
  float rho;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADADELTA_H_
