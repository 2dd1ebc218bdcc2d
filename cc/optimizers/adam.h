#ifndef SOK_CC_OPTIMIZERS_ADAM_H_
#define SOK_CC_OPTIMIZERS_ADAM_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// One step of Adam on an element with a gradient (Kingma and Ba, 2015, in the "epsilon hat" form), with the
// operations of tf.compat.v1.train.AdamOptimizer on rows:
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g * g
//   w -= m * alpha / (sqrt(v) + epsilon)
// If v overflows, it stays inf and the element does not move any more. (The form of TensorFlow's dense
// kernel, v += (g^2 - v) * (1 - beta2), would give inf - inf in the next step.) The product in v is evaluated
// from the left, the order that a session's graph optimizer chooses, so it overflows no earlier than v does.
// With g * g first, as in Keras' optimizer, v is inf from |g| = 1.8e19 on. With epsilon 0, an element that
// has never had a gradient becomes NaN, 0 / 0, as in TensorFlow.
//
// alpha is the bias-corrected rate of the step, learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t), which the
// caller computes.
struct AdamStep : RuleDefaults {
  static constexpr HyperParameter kHyper[] = {{"alpha", HyperRange::kFinite},
                                              {"beta1", HyperRange::kBelowOne},
                                              {"beta2", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"m"}, {"v"}};

  explicit AdamStep(const float* hyper)
      : alpha(hyper[0]),
        beta1(hyper[1]),
        beta2(hyper[2]),
        gain1(1.0f - hyper[1]),
        gain2(1.0f - hyper[2]),
        epsilon(hyper[3]) {}

  SOK_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    m = m * beta1 + g * gain1;
    v = v * beta2 + gain2 * g * g;
    w -= m * alpha / (sqrtf(v) + epsilon);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    for (int64_t c = 0; c < row.dim; ++c) {
      double& m = row.slots[0][c];
      double& v = row.slots[1][c];
      m = hyper[1] * m + (1.0 - hyper[1]) * row.g[c];
      v = hyper[2] * v + (1.0 - hyper[2]) * row.g[c] * row.g[c];
      row.w[c] -= hyper[0] * m / (sqrt(v) + hyper[3]);
    }
  }

  float alpha;
  float beta1;
  float beta2;
  float gain1;
  float gain2;
  float epsilon;
};

// Adam on the touched rows only.
struct LazyAdam : AdamStep {
  static constexpr const char* kName = "lazy_adam";
  static constexpr const char* kSource = "Kingma and Ba, 2015, on the touched rows alone";
  static constexpr float kSamples[][4] = {{0.01f, 0.9f, 0.999f, 1e-8f}, {0.01f, 0.0f, 0.9f, 1e-3f}};

  using AdamStep::AdamStep;
};

// Adam on all rows in each step; see exact_adam.h. The samples cover its three ways to catch up: series of
// four and of eight terms, and step by step.
struct Adam : AdamStep {
  static constexpr const char* kName = "adam";
  static constexpr const char* kSource =
      "Kingma and Ba, 2015; TensorFlow's AdamOptimizer and Keras' legacy Adam";
  static constexpr UntouchedRows kUntouched = UntouchedRows::kMove;
  static constexpr float kSamples[][4] = {
      {0.01f, 0.9f, 0.999f, 1e-8f}, {0.01f, 0.9f, 0.98f, 1e-8f}, {0.01f, 0.9f, 0.9f, 1e-8f}};

  using AdamStep::AdamStep;
};

// Applies all steps that a row has missed under the exact Adam to one of its elements at once. With
// y = epsilon / (sqrt(v) + epsilon) and `gap` missed steps (adam_series.h has the derivation):
//   w -= m / (sqrt(v) + epsilon) * (c_0 + c_1 y + ... + c_{N-1} y^{N-1})
//   m *= beta1^gap,  v *= beta2^gap
// An element whose v is inf does not move. With epsilon 0, y is 0 and one term suffices. One object serves
// all elements of a row.
template <int kTerms>
struct AdamCatchUp {
  SOK_HOST_DEVICE void operator()(float& w, float& m, float& v) const {
    const float inverse = 1.0f / (sqrtf(v) + epsilon);
    const float y = epsilon * inverse;
    float sum = coefficients[kTerms - 1];
    for (int c = kTerms - 2; c >= 0; --c) sum = sum * y + coefficients[c];
    // Divides first: m * sum could overflow where no single step does.
    w -= m * inverse * sum;
    m *= decay1;
    v *= decay2;
  }

  float coefficients[kTerms];
  float epsilon;
  float decay1;  // beta1^gap
  float decay2;  // beta2^gap
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_H_
