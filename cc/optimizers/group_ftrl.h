#ifndef SOK_CC_OPTIMIZERS_GROUP_FTRL_H_
#define SOK_CC_OPTIMIZERS_GROUP_FTRL_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/ftrl.h"
#include "cc/optimizers/rule.h"

namespace sok {

// One step of FTRL with group lasso (see GroupFtrl), compiled for its hyper-parameters as FtrlStep is.
template <bool kSquareRoot, bool kShrinkage>
struct GroupFtrlStep {
  explicit GroupFtrlStep(const float* hyper) : ftrl(hyper) {}

  // The second pass, once all elements have their z: computes the new weights and the accumulators.
  struct Weights {
    SOK_HOST_DEVICE void operator()(float g, float& w, float& n, float& z) const {
      const float shrunk = ftrl.Shrunk(g, w);
      const float quadratic = ftrl.Power(n + shrunk * shrunk) / ftrl.learning_rate + ftrl.twice_l2;
      w = is_zero ? 0.0f : (ftrl.l1 - norm) / (quadratic * norm) * z;
      n += g * g;
    }

    FtrlStep<kSquareRoot, kShrinkage> ftrl;
    float norm;
    bool is_zero;
  };

  SOK_HOST_DEVICE void operator()(float g, float& w, float& n, float& z) const {
    const float shrunk = ftrl.Shrunk(g, w);
    z += shrunk - (ftrl.Power(n + shrunk * shrunk) - ftrl.Power(n)) / ftrl.learning_rate * w;
  }

  SOK_HOST_DEVICE Weights ForNorm(double sum_of_squares) const {
    const float norm = static_cast<float>(sqrt(sum_of_squares));
    return {ftrl, norm, norm <= ftrl.l1};  // false if the norm is NaN: then so are the weights
  }

  FtrlStep<kSquareRoot, kShrinkage> ftrl;
};

// FTRL in which l1 is group lasso: it acts on the Euclidean norm of a row's linear slot, and so sets all
// weights of a row to zero or none. The arithmetic of DeepRec's KvResourceSparseApplyFtrl kernels, and beta
// of TensorFlow's FtrlOptimizer. With p = -learning_rate_power, l2' = l2 + beta / (2 lr) and g' = g + 2 *
// l2_shrinkage * w, which unlike TensorFlow's kernels also count in the step's n':
//   n' = n + g'^2
//   z += g' - (n'^p - n^p) / lr * w
//   w = (l1 - |z|) / ((n'^p / lr + 2 * l2') * |z|) * z  where |z| > l1 is the norm of the row's z, else 0
//   n += g^2
struct GroupFtrl : FtrlFamily<GroupFtrlStep> {
  static constexpr const char* kName = "group_ftrl";
  static constexpr const char* kSource = "FTRL with group lasso over a row; DeepRec's FtrlOptimizer";
  static constexpr float kSamples[][7] = {{0.1f, -0.5f, 0.1f, 0.5f, 0.02f, 0.03f, 0.5f},
                                          {0.1f, -0.5f, 0.1f, 2.0f, 1e-5f, 0.0f, 0.0f},
                                          {0.1f, -0.7f, 0.1f, 0.5f, 0.02f, 0.03f, 0.0f},
                                          {0.1f, -0.4f, 0.1f, 0.0f, 0.02f, 0.0f, 0.0f}};
  static constexpr int kNormOfSlot = 1;

  static void Reference(const double* hyper, ReferenceRow row) {
    const double power = -hyper[1];
    const double l2 = hyper[4] + hyper[6] / (2.0 * hyper[0]);
    double squares = 0.0;
    for (int64_t c = 0; c < row.dim; ++c) {
      const double shrunk = row.g[c] + 2.0 * hyper[5] * row.w[c];
      const double n = row.slots[0][c];
      double& z = row.slots[1][c];
      z += shrunk - (pow(n + shrunk * shrunk, power) - pow(n, power)) / hyper[0] * row.w[c];
      squares += z * z;
    }
    const double norm = sqrt(squares);
    for (int64_t c = 0; c < row.dim; ++c) {
      const double shrunk = row.g[c] + 2.0 * hyper[5] * row.w[c];
      double& n = row.slots[0][c];
      const double quadratic = pow(n + shrunk * shrunk, power) / hyper[0] + 2.0 * l2;
      row.w[c] = norm > hyper[3] ? (hyper[3] - norm) / norm / quadratic * row.slots[1][c] : 0.0;
      n += row.g[c] * row.g[c];
    }
  }
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_GROUP_FTRL_H_
