#ifndef SOK_CC_OPTIMIZERS_ADAM_CATCH_UP_H_
#define SOK_CC_OPTIMIZERS_ADAM_CATCH_UP_H_

#include <math.h>

#include "cc/base/host_device.h"

namespace sok {

// The steps that a row has missed under the exact Adam, applied to one of its elements at once (the
// derivation is in adam_series.h): with y = epsilon / (sqrt(v) + epsilon),
//   w -= m / (sqrt(v) + epsilon) * (c_0 + c_1 y + ... + c_{N-1} y^{N-1})
//   m *= beta1^gap,  v *= beta2^gap
// v may be inf: such an element stays where it is. One term is all that epsilon 0 needs, as y is 0 then.
// One of these serves all elements of a row.
template <int kTerms>
struct AdamCatchUp {
  SOK_HOST_DEVICE void operator()(float& w, float& m, float& v) const {
    const float inverse = 1.0f / (sqrtf(v) + epsilon);
    const float y = epsilon * inverse;
    float sum = coefficients[kTerms - 1];
    for (int c = kTerms - 2; c >= 0; --c) sum = sum * y + coefficients[c];
    // In this order: m times the sum may overflow where no step of TensorFlow's does.
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

#endif  // SOK_CC_OPTIMIZERS_ADAM_CATCH_UP_H_
