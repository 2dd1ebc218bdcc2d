// Powers of decay rates, for optimizers that postpone what a step does to rows without a gradient. Compiled
// by g++ and nvcc, so that all engines get the same bits.
#ifndef SOK_CC_OPTIMIZERS_DECAY_H_
#define SOK_CC_OPTIMIZERS_DECAY_H_

#include <math.h>

#include <cstdint>

#include "cc/base/host_device.h"

namespace sok {

// base^n for 0 <= base <= 1 and n >= 0: a power is the product of one of the first kRow powers and one of the
// powers of base^kRow, from tables, to a few units in the last place of a double. Beyond kRow * kRow, the
// remaining factor is computed by repeated squaring, with a relative error below 2e-12 for n < 2^31.
struct Powers {
  static constexpr int64_t kRow = 512;

  SOK_HOST_DEVICE double operator()(int64_t n) const {
    double power = low[n % kRow] * high[n / kRow % kRow];
    double square = beyond;
    for (int64_t rest = n / (kRow * kRow); rest > 0; rest /= 2) {
      if (rest % 2 != 0) power *= square;
      square *= square;
    }
    return power;
  }

  const double* low = nullptr;   // [kRow]: base^i
  const double* high = nullptr;  // [kRow]: base^(i * kRow)
  double beyond = 1.0;           // base^(kRow * kRow)
};

// A power of a decay rate as a factor of moments: 0 if it is below the normal floats. What it would leave of
// a moment is negligible against any later gradient, and arithmetic on subnormal numbers is slow.
SOK_HOST_DEVICE float MomentDecay(double power) {
  constexpr double kSmallestNormalFloat = 1.17549435e-38;
  return power < kSmallestNormalFloat ? 0.0f : static_cast<float>(power);
}

// A moment after steps without a gradient, each of which multiplied it by `rate`; `decay` is MomentDecay of
// the power. A moment that is inf stays inf; multiplying it by 0 would give NaN.
SOK_HOST_DEVICE float DecayedMoment(float moment, float rate, float decay) {
  return moment * (fabsf(moment) == INFINITY ? rate : decay);
}

// What a slot is multiplied by in `steps` >= 1 steps that each multiply it by `factor`. It vanishes only
// where the factor of one step is 0: a slot that has overflowed must stay infinite, as it does step by step,
// and not become 0 * inf.
SOK_HOST_DEVICE float SlotDecay(float factor, const Powers& powers, int64_t steps) {
  constexpr float kSmallestNormalFloat = 1.17549435e-38f;
  const float least = factor > 0.0f ? kSmallestNormalFloat : 0.0f;
  const float power = static_cast<float>(powers(steps));
  return power < least ? least : power;
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_DECAY_H_
