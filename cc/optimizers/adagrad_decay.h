#ifndef SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_H_
#define SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_H_

#include <math.h>

#include "cc/base/host_device.h"
#include "cc/optimizers/rule.h"

namespace sok {

// Adagrad whose accumulators decay from one period of training to the next, as in DeepRec's
// AdagradDecayOptimizer. A row has one accumulator per element, a, and a count of its decays, d:
//   if period > d:  a = max(decay_rate * a, initial_accumulator),  d += 1
//   a += g^2
//   w -= learning_rate * g / sqrt(a)
// Periods are counted from 0. A row that has missed periods catches up by one period in each step that
// touches it. d is a float, exact up to 2^24; callers pass periods no larger than that.
struct AdagradDecay : RuleDefaults {
  static constexpr const char* kName = "adagrad_decay";
  static constexpr const char* kSource = "DeepRec's AdagradDecayOptimizer";
  static constexpr HyperParameter kHyper[] = {{"learning_rate", HyperRange::kFinite},
                                              {"initial_accumulator", HyperRange::kPositive},
                                              {"decay_rate", HyperRange::kUnit},
                                              {"period", HyperRange::kNonNegative}};
  static constexpr RuleSlot kSlots[kMaxSlots] = {{"accumulator", /*fill=*/"initial_accumulator"},
                                                 {"decay_power", nullptr, /*one_per_row=*/true}};
  static constexpr float kSamples[][4] = {{0.1f, 0.1f, 0.5f, 4.0f}, {0.1f, 0.1f, 0.9f, 0.0f}};

  explicit AdagradDecay(const float* hyper)
      : learning_rate(hyper[0]), factor(hyper[2]), least(hyper[1]), period(hyper[3]) {}

  // Returns the step for the row's elements. If the row does not decay, factor 1 and least 0 leave the
  // accumulators as they are.
  template <typename Dim>
  SOK_HOST_DEVICE AdagradDecay ForRow(const float* /*g*/, float* row_slots, Dim /*dim*/) const {
    AdagradDecay step = *this;
    if (period > row_slots[0]) {
      row_slots[0] += 1.0f;
    } else {
      step.factor = 1.0f;
      step.least = 0.0f;
    }
    return step;
  }

  SOK_HOST_DEVICE void operator()(float g, float& w, float& a) const {
    const float decayed = a * factor;
    a = (decayed < least ? least : decayed) + g * g;
    w -= learning_rate * g / sqrtf(a);
  }

  static void Reference(const double* hyper, ReferenceRow row) {
    double& decays = row.slots[1][0];
    const bool decay = hyper[3] > decays;
    if (decay) decays += 1.0;
    for (int64_t c = 0; c < row.dim; ++c) {
      double& a = row.slots[0][c];
      if (decay) a = fmax(hyper[2] * a, hyper[1]);
      a += row.g[c] * row.g[c];
      row.w[c] -= hyper[0] * row.g[c] / sqrt(a);
    }
  }

  float learning_rate;
  float factor;
  float least;
  float period;
};

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_ADAGRAD_DECAY_H_
