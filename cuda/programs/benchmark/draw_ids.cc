#include "cuda/programs/benchmark/draw_ids.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

namespace sok {
namespace {

// Draws k in [0, keys) with a probability proportional to (k + 1)^-s: by rejection (Hormann, Derflinger,
// "Rejection-inversion to generate variates from monotone discrete distributions", 1996), which needs no
// table of all keys.
class ZipfDraw {
 public:
  ZipfDraw(double s, int64_t keys) : s_(s), keys_(keys) {
    low_ = Integral(1.5) - 1.0;
    high_ = Integral(static_cast<double>(keys) + 0.5);
    sure_ = 2.0 - Inverse(Integral(2.5) - std::pow(2.0, -s));
  }

  template <typename Random>
  int64_t operator()(Random& random) {
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    while (true) {
      const double u = high_ + uniform(random) * (low_ - high_);
      const double x = Inverse(u);
      const auto k = std::min(keys_, std::max<int64_t>(1, std::llround(x)));
      const auto at = static_cast<double>(k);
      if (at - x <= sure_ || u >= Integral(at + 0.5) - std::pow(at, -s_)) return k - 1;
    }
  }

 private:
  // The integral of x^-s, and its inverse, in a form that holds for s = 1 as well.
  double Integral(double x) const {
    const double t = (1 - s_) * std::log(x);
    return std::abs(t) > 1e-8 ? std::log(x) * std::expm1(t) / t : std::log(x) * (1 + t / 2);
  }
  double Inverse(double y) const {
    const double t = std::max(-1.0, (1 - s_) * y);
    return std::exp(std::abs(t) > 1e-8 ? y * std::log1p(t) / t : y * (1 - t / 2));
  }

  double s_;
  int64_t keys_;
  double low_, high_, sure_;
};

}  // namespace

std::string IdsDrawn::name() const {
  if (zipf == 0) return "uniform";
  char text[32];
  std::snprintf(text, sizeof(text), "zipf %.3g", zipf);
  return text;
}

std::vector<int64_t> DrawIds(const IdsDrawn& drawn, int64_t n, int64_t keys, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> ids(n);
  if (drawn.zipf == 0) {
    std::uniform_int_distribution<int64_t> uniform(0, keys - 1);
    for (int64_t& id : ids) id = uniform(random);
    return ids;
  }
  ZipfDraw zipf(drawn.zipf, keys);
  // Ranks times a coprime number: a permutation.
  int64_t factor = 7919;
  while (std::gcd(factor, keys) != 1) ++factor;
  for (int64_t& id : ids) id = (zipf(random) * factor + 13) % keys;
  return ids;
}

}  // namespace sok
