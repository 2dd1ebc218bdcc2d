#ifndef SOK_CC_OPTIMIZERS_MOMENTUM_H_
#define SOK_CC_OPTIMIZERS_MOMENTUM_H_

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// Momentum as tf.compat.v1.train.MomentumOptimizer has it, on the touched rows:
//   a = momentum * a + g
//   w -= learning_rate * a                                     (classical)
//   w -= learning_rate * g + learning_rate * momentum * a      (Nesterov)
template <bool kNesterov>
struct Momentum {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"momentum", HyperRange::kNonNegative}};
  static constexpr int kSlots = 1;
  static const char* SlotName(int /*slot*/) { return "momentum"; }
  static float SlotFill(const float* /*hyper*/, int /*slot*/) { return 0.0f; }

  explicit Momentum(const float* hyper)
      : learning_rate(hyper[0]), momentum(hyper[1]), look_ahead(hyper[0] * hyper[1]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a) const {
    a = a * momentum + g;
    w -= kNesterov ? learning_rate * g + look_ahead * a : learning_rate * a;
  }

  float learning_rate;
  float momentum;
  float look_ahead;
};

// Momentum as Keras' legacy SGD has it: the slot holds the move, learning rate included.
//   a = momentum * a - learning_rate * g
//   w += a                                                     (classical)
//   w += momentum * a - learning_rate * g                      (Nesterov)
template <bool kNesterov>
struct KerasMomentum {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"momentum", HyperRange::kNonNegative}};
  static constexpr int kSlots = 1;
  static const char* SlotName(int /*slot*/) { return "momentum"; }
  static float SlotFill(const float* /*hyper*/, int /*slot*/) { return 0.0f; }

  explicit KerasMomentum(const float* hyper) : learning_rate(hyper[0]), momentum(hyper[1]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a) const {
    a = a * momentum - learning_rate * g;
    w += kNesterov ? a * momentum - learning_rate * g : a;
  }

  float learning_rate;
  float momentum;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_MOMENTUM_H_
