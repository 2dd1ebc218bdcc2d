#ifndef SOK_CC_OPTIMIZERS_POWER_TABLE_H_
#define SOK_CC_OPTIMIZERS_POWER_TABLE_H_

#include <cmath>
#include <cstdint>
#include <vector>

namespace sok {

// base^n for 0 <= base <= 1 and n >= 0, to a few units in the last place of a double, in one multiplication:
// a power is the product of one of the first kRow powers and one of the powers of base^kRow.
class PowerTable {
 public:
  explicit PowerTable(double base) : base_(base), low_(kRow), high_(kRow) {
    for (int64_t i = 0; i < kRow; ++i) {
      low_[i] = std::pow(base, static_cast<double>(i));
      high_[i] = std::pow(base, static_cast<double>(i * kRow));
    }
  }

  double operator()(int64_t n) const {
    if (n >= kRow * kRow) return std::pow(base_, static_cast<double>(n));
    return low_[n % kRow] * high_[n / kRow];
  }

 private:
  static constexpr int64_t kRow = 512;
  double base_;
  std::vector<double> low_;
  std::vector<double> high_;
};

// A power of a decay rate as a factor of moments: 0 where it is no normal float. What would be left of a
// moment is nothing beside any later gradient, and arithmetic on subnormal numbers is slow.
inline float MomentDecay(double power) {
  constexpr double kSmallestNormalFloat = 1.17549435e-38;
  return power < kSmallestNormalFloat ? 0.0f : static_cast<float>(power);
}

// A moment after steps without a gradient, each of which multiplied it by `rate`; `decay` is MomentDecay of
// the power. A moment that is inf stays inf, which a factor of 0 would make NaN of.
inline float DecayedMoment(float moment, float rate, float decay) {
  return moment * (std::isinf(moment) ? rate : decay);
}

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_POWER_TABLE_H_
