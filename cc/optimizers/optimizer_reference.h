#ifndef SOK_CC_OPTIMIZERS_OPTIMIZER_REFERENCE_H_
#define SOK_CC_OPTIMIZERS_OPTIMIZER_REFERENCE_H_

#include <cmath>
#include <string_view>
#include <vector>

namespace sok {

// One step of the named optimizer on one row, straight from the formulas, in single precision. `hyper` is as
// of MakeOptimizer, `slots` holds a vector per slot, g, w and the slots are as long as the row is wide.
// Covers the optimizers that leave untouched rows alone.
inline void ReferenceStep(std::string_view name, const std::vector<float>& hyper, const std::vector<float>& g,
                          std::vector<float>* w, std::vector<std::vector<float>>* slots) {
  const float lr = hyper[0];
  if (name == "rowwise_adagrad") {
    double squares = 0.0;
    for (float value : g) squares += static_cast<double>(value) * value;
    (*slots)[0][0] += static_cast<float>(squares / static_cast<double>(g.size()));
    for (size_t c = 0; c < g.size(); ++c) (*w)[c] -= lr * g[c] / (std::sqrt((*slots)[0][0]) + hyper[2]);
    return;
  }
  bool decay = false;
  if (name == "adagrad_decay") {
    decay = hyper[3] > (*slots)[1][0];
    if (decay) (*slots)[1][0] += 1.0f;
  }
  for (size_t c = 0; c < g.size(); ++c) {
    float& x = (*w)[c];
    float unused = 0.0f;
    float& s0 = slots->size() > 0 ? (*slots)[0][c] : unused;
    float& s1 = slots->size() > 1 && c < (*slots)[1].size() ? (*slots)[1][c] : unused;
    float& s2 = slots->size() > 2 ? (*slots)[2][c] : unused;
    if (name == "sgd") {
      x -= lr * g[c];
    } else if (name == "momentum") {
      s0 = hyper[1] * s0 + g[c];
      x -= lr * s0;
    } else if (name == "nesterov") {
      s0 = hyper[1] * s0 + g[c];
      x -= lr * g[c] + lr * hyper[1] * s0;
    } else if (name == "keras_momentum") {
      s0 = hyper[1] * s0 - lr * g[c];
      x += s0;
    } else if (name == "keras_nesterov") {
      s0 = hyper[1] * s0 - lr * g[c];
      x += hyper[1] * s0 - lr * g[c];
    } else if (name == "adagrad") {
      s0 += g[c] * g[c];
      x -= lr * g[c] / (std::sqrt(s0) + hyper[2]);
    } else if (name == "adagrad_decay") {
      if (decay) s0 = std::fmax(hyper[2] * s0, hyper[1]);
      s0 += g[c] * g[c];
      x -= lr * g[c] / std::sqrt(s0);
    } else if (name == "rmsprop") {
      s0 = hyper[1] * s0 + (1.0f - hyper[1]) * g[c] * g[c];
      s1 = hyper[2] * s1 + lr * g[c] / std::sqrt(s0 + hyper[3]);
      x -= s1;
    } else if (name == "rmsprop_centered") {
      s0 = hyper[1] * s0 + (1.0f - hyper[1]) * g[c] * g[c];
      s2 = hyper[1] * s2 + (1.0f - hyper[1]) * g[c];
      s1 = hyper[2] * s1 + lr * g[c] / std::sqrt(s0 - s2 * s2 + hyper[3]);
      x -= s1;
    } else if (name == "ftrl") {
      const float n = s0 + g[c] * g[c];
      const float l2 = hyper[4] + hyper[6] / (2.0f * lr);
      const float sigma = (std::pow(n, -hyper[1]) - std::pow(s0, -hyper[1])) / lr;
      s1 += g[c] + 2.0f * hyper[5] * x - sigma * x;
      s0 = n;
      const float quadratic = std::pow(n, -hyper[1]) / lr + 2.0f * l2;
      x = std::fabs(s1) > hyper[3] ? (std::copysign(hyper[3], s1) - s1) / quadratic : 0.0f;
    } else if (name == "adadelta") {
      s0 = hyper[1] * s0 + (1.0f - hyper[1]) * g[c] * g[c];
      const float step = std::sqrt(s1 + hyper[2]) / std::sqrt(s0 + hyper[2]) * g[c];
      x -= lr * step;
      s1 = hyper[1] * s1 + (1.0f - hyper[1]) * step * step;
    } else if (name == "adamax") {
      s0 = hyper[1] * s0 + (1.0f - hyper[1]) * g[c];
      s1 = std::fmax(hyper[2] * s1, std::fabs(g[c]));
      x -= lr * s0 / (s1 + hyper[3]);
    } else if (name == "lazy_adam") {
      s0 = hyper[1] * s0 + (1.0f - hyper[1]) * g[c];
      s1 = hyper[2] * s1 + (1.0f - hyper[2]) * g[c] * g[c];
      x -= lr * s0 / (std::sqrt(s1) + hyper[3]);
    }
  }
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_OPTIMIZER_REFERENCE_H_
