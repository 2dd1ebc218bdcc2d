#ifndef SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_H_
#define SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/hyper_parameter.h"

namespace sok {

// Adagrad whose accumulators decay from one period of training to the next, as DeepRec's
// AdagradDecayOptimizer has it:
//   a = max(decay_rate * a, initial_accumulator)     in a step in which the row's accumulators decay
//   a += g^2
//   w -= learning_rate * g / sqrt(a)
// A row decays in a step that touches it where the period, a count from 0, is above the row's own count of
// decays, which then goes up by one. So a row that has missed periods makes up for one of them in each step
// that touches it.
struct AdagradDecay {
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"initial_accumulator", HyperRange::kPositive},
                                              {"decay_rate", HyperRange::kUnit},
                                              {"period", HyperRange::kNonNegative}};
  // Of an element; the row has one number more, its count of decays.
  static constexpr int kSlots = 1;
  static const char* SlotName(int /*slot*/) { return "accumulator"; }
  static float SlotFill(const float* hyper, int /*slot*/) { return hyper[1]; }

  // The step of a row whose accumulators decay.
  explicit AdagradDecay(const float* hyper) : learning_rate(hyper[0]), factor(hyper[2]), least(hyper[1]) {}

  // The step of a row whose accumulators do not.
  SOK_HOST_DEVICE AdagradDecay WithoutDecay() const {
    AdagradDecay rule = *this;
    rule.factor = 1.0f;
    rule.least = 0.0f;
    return rule;
  }

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a) const {
    const float decayed = a * factor;
    a = (decayed < least ? least : decayed) + g * g;
    w -= learning_rate * g / sqrtf(a);
  }

  float learning_rate;
  float factor;
  float least;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_H_
