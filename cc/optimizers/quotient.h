#ifndef SOK_CC_OPTIMIZERS_QUOTIENT_H_
#define SOK_CC_OPTIMIZERS_QUOTIENT_H_

#include "cc/base/host_device.h"

namespace sok {

// numerator / denominator, and 0 for 0 / 0: an element that has never had a gradient stays where it is when
// epsilon is 0. (TensorFlow's kernels write NaN there.)
SOK_HOST_DEVICE float Quotient(float numerator, float denominator) {
  const float quotient = numerator / denominator;
  return numerator == 0.0f ? 0.0f : quotient;
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_QUOTIENT_H_
