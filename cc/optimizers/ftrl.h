#ifndef SOK_CC_OPTIMIZERS_FTRL_H_
#define SOK_CC_OPTIMIZERS_FTRL_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// Follow the regularized leader (McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013) with
// the arithmetic of TensorFlow's FtrlV2 kernels. With p = -learning_rate_power and l2' = l2 + beta / (2 lr):
//   n' = n + g^2
//   z += g + 2 * l2_shrinkage * w - (n'^p - n^p) / lr * w
//   w = (max(-l1, min(z, l1)) - z) / (n'^p / lr + 2 * l2')
//   n = n'
// kSquareRoot: learning_rate_power is -1/2, the default, and powers are square roots. kShrinkage:
// l2_shrinkage is not 0; a term of 0 * w would make NaN of a weight that is inf.
template <bool kSquareRoot, bool kShrinkage>
struct FtrlStep {
  static constexpr int kSlots = 2;

  explicit FtrlStep(const float* hyper)
      : learning_rate(hyper[0]),
        power(-hyper[1]),
        l1(hyper[3]),
        twice_l2(2.0f * (hyper[4] + hyper[6] / (2.0f * hyper[0]))),
        twice_shrinkage(2.0f * hyper[5]) {}

  SOK_HOST_DEVICE float Power(float n) const { return kSquareRoot ? sqrtf(n) : powf(n, power); }

  SOK_HOST_DEVICE void operator()(float g, float& w, float& n, float& z) const {
    const float new_n = n + g * g;
    const float new_root = Power(new_n);
    const float shrunk = kShrinkage ? g + twice_shrinkage * w : g;
    z += shrunk - (new_root - Power(n)) / learning_rate * w;
    const float below = z < l1 ? z : l1;
    // NaN - NaN where z is NaN, whatever the bounds make of it.
    w = ((below > -l1 ? below : -l1) - z) / (new_root / learning_rate + twice_l2);
    n = new_n;
  }

  float learning_rate;
  float power;
  float l1;
  float twice_l2;
  float twice_shrinkage;
};

// What FTRL's two steps share: hyper-parameters and slots.
struct Ftrl {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kPositive},
                                              {"learning_rate_power", HyperRange::kNonPositive},
                                              {"initial_accumulator", HyperRange::kNonNegative},
                                              {"l1", HyperRange::kNonNegative},
                                              {"l2", HyperRange::kNonNegative},
                                              {"l2_shrinkage", HyperRange::kNonNegative},
                                              {"beta", HyperRange::kNonNegative}};
  static constexpr int kSlots = 2;
  static const char* SlotName(int slot) { return slot == 0 ? "accumulator" : "linear"; }
  static float SlotFill(const float* hyper, int slot) { return slot == 0 ? hyper[2] : 0.0f; }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_FTRL_H_
