#ifndef SOK_CC_OPTIMIZERS_ADAGRAD_H_
#define SOK_CC_OPTIMIZERS_ADAGRAD_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// Adagrad (Duchi, Hazan and Singer, 2011) with TensorFlow's arithmetic: tf.compat.v1.train.AdagradOptimizer
// with epsilon 0, Keras' legacy Adagrad with its own.
//   a += g^2
//   w -= learning_rate * g / (sqrt(a) + epsilon)
struct Adagrad {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"initial_accumulator", HyperRange::kNonNegative},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr int kSlots = 1;
  static const char* SlotName(int /*slot*/) { return "accumulator"; }
  static float SlotFill(const float* hyper, int /*slot*/) { return hyper[1]; }

  explicit Adagrad(const float* hyper) : learning_rate(hyper[0]), epsilon(hyper[2]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a) const {
    a += g * g;
    w -= learning_rate * g / (sqrtf(a) + epsilon);
  }

  float learning_rate;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAGRAD_H_
