#ifndef SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_H_
#define SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Adagrad with one accumulator per row, which saves memory in recommendation models:
//   a += mean over the row of g^2
//   w -= learning_rate * g / (sqrt(a) + epsilon)
struct RowwiseAdagrad : RuleDefaults {
  static constexpr const char* kName = "rowwise_adagrad";
  static constexpr const char* kSource = "Adagrad with the mean square of a row's gradient";
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"initial_accumulator", HyperRange::kNonNegative},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {
      {"accumulator", /*fill=*/"initial_accumulator", /*one_per_row=*/true}};
  static constexpr float kSamples[][3] = {{0.1f, 0.1f, 0.0f}, {0.1f, 0.0f, 1e-8f}};
  static constexpr bool kTakesSumOfSquares = true;

  explicit RowwiseAdagrad(const float* hyper) : learning_rate(hyper[0]), epsilon(hyper[2]) {}

  // The step of the row's elements, after the update of the accumulator.
  struct Elements {
    SOK_HOST_DEVICE void operator()(float g, float& w) const { w -= learning_rate * g / divisor; }

    float learning_rate;
    float divisor;
  };

  template <typename Dim>
  SOK_HOST_DEVICE Elements ForRow(const float* g, float* row_slots, Dim dim) const {
    return ForSumOfSquares(static_cast<float>(SumOfSquares(g, dim)), row_slots, dim);
  }
  template <typename Dim>
  SOK_HOST_DEVICE Elements ForSumOfSquares(float sum, float* row_slots, Dim dim) const {
    row_slots[0] += sum / static_cast<float>(static_cast<int>(dim));
    return {learning_rate, sqrtf(row_slots[0]) + epsilon};
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    double& a = row.slots[0][0];
    double squares = 0.0;
    for (int64_t c = 0; c < row.dim; ++c) squares += row.g[c] * row.g[c];
    a += squares / static_cast<double>(row.dim);
    for (int64_t c = 0; c < row.dim; ++c) row.w[c] -= hyper[0] * row.g[c] / (sqrt(a) + hyper[2]);
  }

  float learning_rate;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_H_
