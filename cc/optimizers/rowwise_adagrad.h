#ifndef SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_H_
#define SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// Adagrad with one accumulator per row, as recommendation models use it to save memory:
//   a += mean over the row of g^2
//   w -= learning_rate * g / (sqrt(a) + epsilon)
struct RowwiseAdagrad {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"initial_accumulator", HyperRange::kNonNegative},
                                              {"epsilon", HyperRange::kNonNegative}};
  static constexpr int kSlots = 1;
  static const char* SlotName(int /*slot*/) { return "accumulator"; }
  static float SlotFill(const float* hyper, int /*slot*/) { return hyper[1]; }

  explicit RowwiseAdagrad(const float* hyper) : learning_rate(hyper[0]), epsilon(hyper[2]) {}

  // What the row's elements are divided by, once its accumulator has grown.
  SOK_HOST_DEVICE float Divisor(float sum_of_squares, int dim, float& a) const {
    a += sum_of_squares / static_cast<float>(dim);
    return sqrtf(a) + epsilon;
  }
  SOK_HOST_DEVICE void operator()(float g, float divisor, float& w) const {
    w -= learning_rate * g / divisor;
  }

  float learning_rate;
  float epsilon;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ROWWISE_ADAGRAD_H_
