#ifndef SOK_CC_CPU_OPTIMIZERS_TESTING_ADAM_REFERENCE_H_
#define SOK_CC_CPU_OPTIMIZERS_TESTING_ADAM_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <vector>

namespace sok {

// Adam on a dense variable with sparse gradients, as tf.compat.v1.train.AdamOptimizer runs it: every step
// decays the moments of every row and moves every row. `T` is double for the true result, and float for
// TensorFlow's result with its rounding and overflow.
template <typename T>
class DenseAdam {
 public:
  DenseAdam(int64_t rows, int64_t dim) : dim_(dim), w(rows * dim), m(rows * dim), v(rows * dim) {}

  // One step; rows outside `touched` have a gradient of zero. grads is [touched, dim].
  void Step(float alpha, float beta1, float beta2, float epsilon, const std::vector<int64_t>& touched,
            const std::vector<float>& grads) {
    std::vector<T> dense(w.size(), T(0));
    for (size_t i = 0; i < touched.size(); ++i) {
      for (int64_t c = 0; c < dim_; ++c) dense[touched[i] * dim_ + c] = grads[i * dim_ + c];
    }
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = m[i] * T(beta1) + dense[i] * (T(1) - T(beta1));
      v[i] = v[i] * T(beta2) + (T(1) - T(beta2)) * dense[i] * dense[i];
      w[i] -= m[i] * T(alpha) / (std::sqrt(v[i]) + T(epsilon));
    }
  }

 private:
  int64_t dim_;

 public:
  std::vector<T> w, m, v;  // [rows, dim]
};

}  // namespace sok

#endif  // SOK_CC_CPU_OPTIMIZERS_TESTING_ADAM_REFERENCE_H_
