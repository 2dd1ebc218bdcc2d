#ifndef SOK_CC_OPTIMIZERS_ROWWISE_ADAM_H_
#define SOK_CC_OPTIMIZERS_ROWWISE_ADAM_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Adam with decoupled weight decay on the touched rows, with one second moment for each row: AdamW (see
// adamw.h) with the mean over the row of g^2 in place of each element's, as in FBGEMM's
// PARTIAL_ROWWISE_ADAM. A row of n weights has n + 1 numbers of state instead of 2 n.
//   w -= weight_decay * w
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * mean over the row of g^2
//   w -= m * (alpha / (sqrt(v) + epsilon))
// alpha is as for Adam. If v overflows, it stays inf and the row does not move any more.
struct RowwiseAdam : RuleDefaults {
  static constexpr const char* kName = "rowwise_adam";
  static constexpr const char* kSource =
      "Kingma and Ba, 2015, on the touched rows, with the mean square of a row's gradient; FBGEMM's "
      "PARTIAL_ROWWISE_ADAM";
  static constexpr HyperParameter kHyper[] = {{"alpha", HyperRange::kFinite},
                                              {"beta1", HyperRange::kBelowOne},
                                              {"beta2", HyperRange::kUnit},
                                              {"epsilon", HyperRange::kNonNegative},
                                              {"weight_decay", HyperRange::kUnit}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"m"}, {"v", /*fill=*/nullptr, /*one_per_row=*/true}};
  static constexpr float kSamples[][5] = {{0.01f, 0.9f, 0.999f, 1e-8f, 0.0f},
                                          {0.01f, 0.5f, 0.9f, 1e-3f, 0.01f}};
  static constexpr bool kTakesSumOfSquares = true;

  explicit RowwiseAdam(const float* hyper)
      : alpha(hyper[0]),
        beta1(hyper[1]),
        beta2(hyper[2]),
        gain1(1.0f - hyper[1]),
        gain2(1.0f - hyper[2]),
        epsilon(hyper[3]),
        weight_decay(hyper[4]) {}

  // The step of the row's elements, after the update of v.
  struct Elements {
    SOK_HOST_DEVICE void operator()(float g, float& w, float& m) const {
      w -= weight_decay * w;
      m = m * beta1 + g * gain1;
      w -= m * rate;
    }

    float rate;
    float beta1;
    float gain1;
    float weight_decay;
  };

  template <typename Dim>
  SOK_HOST_DEVICE Elements ForRow(const float* g, float* row_slots, Dim dim) const {
    return ForSumOfSquares(static_cast<float>(SumOfSquares(g, dim)), row_slots, dim);
  }
  template <typename Dim>
  SOK_HOST_DEVICE Elements ForSumOfSquares(float sum, float* row_slots, Dim dim) const {
    const float mean = sum / static_cast<float>(static_cast<int>(dim));
    row_slots[0] = row_slots[0] * beta2 + gain2 * mean;
    return {alpha / (sqrtf(row_slots[0]) + epsilon), beta1, gain1, weight_decay};
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    double& v = row.slots[1][0];
    double squares = 0.0;
    for (int64_t c = 0; c < row.dim; ++c) squares += row.g[c] * row.g[c];
    v = hyper[2] * v + (1.0 - hyper[2]) * squares / static_cast<double>(row.dim);
    for (int64_t c = 0; c < row.dim; ++c) {
      double& m = row.slots[0][c];
      m = hyper[1] * m + (1.0 - hyper[1]) * row.g[c];
      row.w[c] = (1.0 - hyper[4]) * row.w[c] - hyper[0] * m / (sqrt(v) + hyper[3]);
    }
  }

  float alpha;
  float beta1;
  float beta2;
  float gain1;
  float gain2;
  float epsilon;
  float weight_decay;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ROWWISE_ADAM_H_
