// Adam: its step, and how a row catches up with the steps that it has missed under the exact Adam. Compiled
// by g++ and nvcc, so that all engines get the same bits.
#ifndef SOK_CC_OPTIMIZERS_ADAM_H_
#define SOK_CC_OPTIMIZERS_ADAM_H_

#include <math.h>

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/optimizers/decay.h"
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
// y = epsilon / (sqrt(v) + epsilon) and `gap` missed steps (adam_history.h has the derivation):
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

// What AdamHistory (adam_history.h) holds, by pointers to host or device memory.
struct AdamHistoryView {
  float beta1 = 0.0f;
  float beta2 = 0.0f;
  int64_t steps = 0;
  int terms = 0;
  const double* coefficients = nullptr;  // [steps, terms]
  const float* alphas = nullptr;         // [steps]
  int64_t loop_horizon = 0;
  Powers beta1_powers;
  Powers beta2_powers;
};

// The catch-up of the elements of a row that was last current at step t0 < history.steps, by the first kTerms
// <= history.terms terms: all of them, or one where epsilon is 0.
template <int kTerms>
SOK_HOST_DEVICE AdamCatchUp<kTerms> MakeAdamCatchUp(const AdamHistoryView& history, int64_t t0,
                                                    float epsilon) {
  AdamCatchUp<kTerms> catch_up;
  const double* coefficients = history.coefficients + t0 * history.terms;
  for (int c = 0; c < kTerms; ++c) catch_up.coefficients[c] = static_cast<float>(coefficients[c]);
  const int64_t gap = history.steps - t0;
  catch_up.epsilon = epsilon;
  catch_up.decay1 = MomentDecay(history.beta1_powers(gap));
  catch_up.decay2 = MomentDecay(history.beta2_powers(gap));
  return catch_up;
}

// Whether such a catch-up would turn an infinite moment of an element into NaN: a power of beta too small for
// a float counts as 0, and inf * 0 is NaN, whereas single steps keep inf. The whole row then has to be walked
// step by step.
SOK_HOST_DEVICE bool LosesInfinity(float decay1, float decay2, float m, float v) {
  return (decay1 == 0.0f && fabsf(m) == INFINITY) || (decay2 == 0.0f && fabsf(v) == INFINITY);
}

// Brings `count` <= kElements elements of such a row up to date by walking the missed steps one by one, in
// double precision, for a history without terms and for a row that LosesInfinity.
template <int kElements>
SOK_HOST_DEVICE void WalkMissedSteps(const AdamHistoryView& history, int64_t t0, float epsilon, int64_t count,
                                     float* w, float* m, float* v) {
  constexpr double kSmallestNormalDouble = 2.2250738585072014e-308;
  const int64_t gap = history.steps - t0;
  const int64_t walked = gap < history.loop_horizon ? gap : history.loop_horizon;
  const double beta1 = history.beta1;
  const double r = sqrt(static_cast<double>(history.beta2));
  // Keeps a root that is inf from being multiplied by 0.
  const double least_power2 = r > 0.0 ? kSmallestNormalDouble : 0.0;
  const float decay1 = MomentDecay(history.beta1_powers(gap));
  const float decay2 = MomentDecay(history.beta2_powers(gap));
  double root[kElements];
  double sum[kElements];  // of alpha_j beta1^j / (s r^j + epsilon)
  for (int64_t c = 0; c < count; ++c) {
    root[c] = sqrt(static_cast<double>(v[c]));
    sum[c] = 0.0;
  }
  double power1 = 1.0;
  double power2 = 1.0;
  for (int64_t j = 1; j <= walked; ++j) {
    power1 *= beta1;
    power2 = power2 * r < least_power2 ? least_power2 : power2 * r;
    const double rate = history.alphas[t0 + j - 1] * power1;
    for (int64_t c = 0; c < count; ++c) sum[c] += rate / (root[c] * power2 + epsilon);
  }
  for (int64_t c = 0; c < count; ++c) {
    w[c] = static_cast<float>(w[c] - m[c] * sum[c]);
    m[c] = DecayedMoment(m[c], history.beta1, decay1);
    v[c] = DecayedMoment(v[c], history.beta2, decay2);
  }
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAM_H_
