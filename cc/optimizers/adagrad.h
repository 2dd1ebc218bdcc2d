#ifndef SOK_CC_OPTIMIZERS_ADAGRAD_H_
#define SOK_CC_OPTIMIZERS_ADAGRAD_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Adagrad (Duchi, Hazan and Singer, 2011) with TensorFlow's arithmetic. tf.compat.v1.train.AdagradOptimizer
// has epsilon 0; Keras' legacy Adagrad sets an epsilon.
//   a += g^2
//   w -= learning_rate * g / (sqrt(a) + epsilon)
struct Adagrad : RuleDefaults {
  static constexpr const char* kName = "adagrad";
  static constexpr const char* kSource =
      "Duchi, Hazan and Singer, 2011; TensorFlow's AdagradOptimizer and Keras' legacy Adagrad";
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"initial_accumulator", HyperRange::kNonNegative},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"accumulator", /*fill=*/"initial_accumulator"}};
  static constexpr float kSamples[][3] = {{0.1f, 0.1f, 0.0f}, {0.1f, 0.0f, 1e-7f}};

  explicit Adagrad(const float* hyper) : learning_rate(hyper[0]), epsilon(hyper[2]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a) const {
    a += g * g;
    w -= learning_rate * g / (sqrtf(a) + epsilon);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& a = row.slots[0][c];
      a += row.g[c] * row.g[c];
      row.w[c] -= hyper[0] * row.g[c] / (sqrt(a) + hyper[2]);
    }
  }

  float learning_rate;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAGRAD_H_
