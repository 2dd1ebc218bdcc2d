#ifndef SOK_CC_OPTIMIZERS_KERAS_RMSPROP_H_
#define SOK_CC_OPTIMIZERS_KERAS_RMSPROP_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// RMSprop as Keras' legacy optimizer has it without momentum: epsilon outside the root, and averages that
// decay on every step for every row, while weights move for touched rows only.
//   rms = rho * rms,                          and for a touched row
//   rms += (1 - rho) * g^2
//   w -= learning_rate * g / (sqrt(rms) + epsilon)
// `decay` holds what the slots of the row at hand decay by: rho to the power of the steps that it has missed
// and this one.
struct KerasRmsprop {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"rho", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr int kSlots = 1;
  static constexpr int kDecayOfSlot[] = {1};
  static const char* SlotName(int /*slot*/) { return "rms"; }
  static float SlotFill(const float* /*hyper*/, int /*slot*/) { return 0.0f; }

  explicit KerasRmsprop(const float* hyper)
      : learning_rate(hyper[0]), gain(1.0f - hyper[1]), epsilon(hyper[2]), decay{hyper[1]} {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& rms) const {
    rms = rms * decay[0] + g * g * gain;
    w -= learning_rate * g / (sqrtf(rms) + epsilon);
  }

  float learning_rate;
  float gain;
  float epsilon;
  float decay[kSlots];
};

// The centered form: the root is of the gradients' variance.
//   mg = rho * mg + (1 - rho) * g
//   w -= learning_rate * g / (sqrt(rms - mg^2) + epsilon)
// Where rounding makes rms - mg^2 negative, which Keras turns into NaN, the variance counts as 0.
struct KerasRmspropCentered {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"rho", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr int kSlots = 2;
  static constexpr int kDecayOfSlot[] = {1, 1};
  static const char* SlotName(int slot) { return slot == 0 ? "rms" : "mg"; }
  static float SlotFill(const float* /*hyper*/, int /*slot*/) { return 0.0f; }

  explicit KerasRmspropCentered(const float* hyper)
      : learning_rate(hyper[0]), gain(1.0f - hyper[1]), epsilon(hyper[2]), decay{hyper[1], hyper[1]} {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& rms, float& mg) const {
    rms = rms * decay[0] + g * g * gain;
    mg = mg * decay[1] + g * gain;
    const float variance = rms - mg * mg;
    const float raised = variance + (variance < 0.0f ? -variance : 0.0f);
    w -= learning_rate * g / (sqrtf(raised) + epsilon);
  }

  float learning_rate;
  float gain;
  float epsilon;
  float decay[kSlots];
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_KERAS_RMSPROP_H_
