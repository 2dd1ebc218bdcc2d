#ifndef SOK_CC_OPTIMIZERS_MOMENTUM_H_
#define SOK_CC_OPTIMIZERS_MOMENTUM_H_

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Momentum on the touched rows, as in tf.compat.v1.train.MomentumOptimizer:
//   a = momentum * a + g
//   w -= learning_rate * a                                     (classical)
//   w -= learning_rate * g + learning_rate * momentum * a      (Nesterov)
template <bool kNesterov>
struct Momentum : RuleDefaults {
  static constexpr const char* kName = kNesterov ? "nesterov" : "momentum";
  static constexpr const char* kSource = "TensorFlow's MomentumOptimizer";
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"momentum", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"momentum"}};
  static constexpr float kSamples[][2] = {{0.1f, 0.9f}};

  explicit Momentum(const float* hyper)
      : learning_rate(hyper[0]), momentum(hyper[1]), look_ahead(hyper[0] * hyper[1]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a) const {
    a = a * momentum + g;
    w -= kNesterov ? learning_rate * g + look_ahead * a : learning_rate * a;
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& a = row.slots[0][c];
      a = hyper[1] * a + row.g[c];
      row.w[c] -= kNesterov ? hyper[0] * row.g[c] + hyper[0] * hyper[1] * a : hyper[0] * a;
    }
  }

  float learning_rate;
  float momentum;
  float look_ahead;
};

// Momentum as in Keras' legacy SGD: the slot holds the move of the weight, which includes the learning rate.
//   a = momentum * a - learning_rate * g
//   w += a                                                     (classical)
//   w += momentum * a - learning_rate * g                      (Nesterov)
template <bool kNesterov>
struct KerasMomentum : RuleDefaults {
  static constexpr const char* kName = kNesterov ? "keras_nesterov" : "keras_momentum";
  static constexpr const char* kSource = "Keras' legacy SGD with momentum";
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"momentum", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"momentum"}};
  static constexpr float kSamples[][2] = {{0.1f, 0.9f}};

  explicit KerasMomentum(const float* hyper) : learning_rate(hyper[0]), momentum(hyper[1]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a) const {
    a = a * momentum - learning_rate * g;
    w += kNesterov ? a * momentum - learning_rate * g : a;
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& a = row.slots[0][c];
      a = hyper[1] * a - hyper[0] * row.g[c];
      row.w[c] += kNesterov ? hyper[1] * a - hyper[0] * row.g[c] : a;
    }
  }

  float learning_rate;
  float momentum;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_MOMENTUM_H_
