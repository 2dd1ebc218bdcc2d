#ifndef SOK_CC_OPTIMIZERS_QUOTIENT_H_
#define SOK_CC_OPTIMIZERS_QUOTIENT_H_

#include "cc/base/host_device.h"

namespace sok {

// numerator / denominator for denominator >= 0, and 0 for 0 / 0: an element that has never had a gradient
// stays where it is when epsilon is 0. (TensorFlow's kernels write NaN there.)
//
// The denominator is changed instead of the result, since a loop with a division that depends on a condition
// does not vectorize.
SOK_HOST_DEVICE float Quotient(float numerator, float denominator) {
  return numerator / (denominator + (numerator == 0.0f ? 1.0f : 0.0f));
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_QUOTIENT_H_
