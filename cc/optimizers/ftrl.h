#ifndef SOK_CC_OPTIMIZERS_FTRL_H_
#define SOK_CC_OPTIMIZERS_FTRL_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// One step of FTRL (see Ftrl), compiled for its hyper-parameters. kSquareRoot: learning_rate_power is -1/2,
// the default, so powers are square roots, which vectorize unlike general powers. kShrinkage: l2_shrinkage is
// not 0. Otherwise the term is left out, as 0 * w would turn an infinite weight into NaN.
template <bool kSquareRoot, bool kShrinkage>
struct FtrlStep {
  explicit FtrlStep(const float* hyper)
      : learning_rate(hyper[0]),
        power(-hyper[1]),
        l1(hyper[3]),
        twice_l2(2.0f * (hyper[4] + hyper[6] / (2.0f * hyper[0]))),
        twice_shrinkage(2.0f * hyper[5]) {}

  SOK_HOST_DEVICE float Power(float n) const { return kSquareRoot ? sqrtf(n) : powf(n, power); }
  SOK_HOST_DEVICE float Shrunk(float g, float w) const { return kShrinkage ? g + twice_shrinkage * w : g; }

  SOK_HOST_DEVICE void operator()(float g, float& w, float& n, float& z) const {
    const float new_n = n + g * g;
    const float new_root = Power(new_n);
    z += Shrunk(g, w) - (new_root - Power(n)) / learning_rate * w;
    const float below = z < l1 ? z : l1;
    // If z is NaN, so is w, whatever the comparisons above give.
    w = ((below > -l1 ? below : -l1) - z) / (new_root / learning_rate + twice_l2);
    n = new_n;
  }

  float learning_rate;
  float power;
  float l1;
  float twice_l2;
  float twice_shrinkage;
};

// What the rules of the FTRL family have in common. Step<kSquareRoot, kShrinkage> is compiled for the
// hyper-parameters as FtrlStep is.
template <template <bool, bool> class Step>
struct FtrlFamily : RuleDefaults {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kPositive},
                                              {"learning_rate_power", HyperRange::kNonPositive},
                                              {"initial_accumulator", HyperRange::kNonNegative},
                                              {"l1", HyperRange::kNonNegative},
                                              {"l2", HyperRange::kNonNegative},
                                              {"l2_shrinkage", HyperRange::kNonNegative},
                                              {"beta", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"accumulator", /*fill=*/"initial_accumulator"}, {"linear"}};
  static constexpr bool kHasVariants = true;

  // powf rounds differently on devices.
  static bool HasSameBitsEverywhere(const float* hyper) { return hyper[1] == -0.5f; }

  template <typename Body>
  static void WithVariant(const float* hyper, const Body& body) {
    const bool square_root = hyper[1] == -0.5f;
    const bool shrinkage = hyper[5] != 0.0f;
    if (square_root && shrinkage) return body(Step<true, true>(hyper));
    if (square_root) return body(Step<true, false>(hyper));
    if (shrinkage) return body(Step<false, true>(hyper));
    return body(Step<false, false>(hyper));
  }
};

// Follow the regularized leader (McMahan et al., "Ad Click Prediction: a View from the Trenches", 2013) with
// the arithmetic of TensorFlow's FtrlV2 kernels. With p = -learning_rate_power and l2' = l2 + beta / (2 lr):
//   n' = n + g^2
//   z += g + 2 * l2_shrinkage * w - (n'^p - n^p) / lr * w
//   w = (max(-l1, min(z, l1)) - z) / (n'^p / lr + 2 * l2')
//   n = n'
struct Ftrl : FtrlFamily<FtrlStep> {
  static constexpr const char* kName = "ftrl";
  static constexpr const char* kSource =
      "McMahan et al., 2013; TensorFlow's FtrlOptimizer and Keras' legacy Ftrl";
  static constexpr float kSamples[][7] = {{0.1f, -0.5f, 0.1f, 0.05f, 0.02f, 0.03f, 0.5f},
                                          {0.1f, -0.5f, 0.1f, 0.0f, 0.0f, 0.0f, 0.0f},
                                          {0.1f, -0.7f, 0.1f, 0.05f, 0.02f, 0.03f, 0.0f},
                                          {0.1f, 0.0f, 0.1f, 0.05f, 0.02f, 0.0f, 0.0f}};

  static void Reference(const double* hyper, ReferenceRow row) {
    const double power = -hyper[1];
    const double l2 = hyper[4] + hyper[6] / (2.0 * hyper[0]);
    for (int64_t c = 0; c < row.dim; ++c) {
      double& n = row.slots[0][c];
      double& z = row.slots[1][c];
      double& w = row.w[c];
      const double new_n = n + row.g[c] * row.g[c];
      const double sigma = (pow(new_n, power) - pow(n, power)) / hyper[0];
      z += row.g[c] + 2.0 * hyper[5] * w - sigma * w;
      const double quadratic = pow(new_n, power) / hyper[0] + 2.0 * l2;
      w = fabs(z) > hyper[3] ? (copysign(hyper[3], z) - z) / quadratic : 0.0;
      n = new_n;
    }
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_FTRL_H_
