// The initial values of rows, on host and device: the same bits under g++ and nvcc. Neither may fuse a
// multiplication and an addition: compile with -ffp-contract=off and with -fmad=false respectively.
#ifndef SOK_CC_INITIALIZERS_INITIALIZER_H_
#define SOK_CC_INITIALIZERS_INITIALIZER_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cc/base/hash.h"
#include "cc/base/host_device.h"
#include "cc/base/span.h"

namespace sok {

// The inverse of the normal distribution function, computed with additions, multiplications, divisions and
// square roots only: the last bits of libm's logarithm differ between systems, and rows must not.

// The natural logarithm of a normal, positive number, to a few units in the last place.
SOK_HOST_DEVICE double PortableLog(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) makes the exponent field step
  // there instead of at the powers of two.
  const uint64_t root_half = 0x3fe6a09e667f3bcdu;
  const int64_t e = static_cast<int64_t>(bits - root_half) >> 52;
  bits -= static_cast<uint64_t>(e) << 52;
  double m;
  memcpy(&m, &bits, sizeof(m));
  // log m = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1), |s| < 0.172: eleven terms.
  const double s = (m - 1.0) / (m + 1.0);
  const double t = s * s;
  double series = 1.0 / 21;
  series = series * t + 1.0 / 19;
  series = series * t + 1.0 / 17;
  series = series * t + 1.0 / 15;
  series = series * t + 1.0 / 13;
  series = series * t + 1.0 / 11;
  series = series * t + 1.0 / 9;
  series = series * t + 1.0 / 7;
  series = series * t + 1.0 / 5;
  series = series * t + 1.0 / 3;
  series = series * t + 1.0;
  return static_cast<double>(e) * 0.693147180559945309417 + 2.0 * s * series;
}

// Whether NormalQuantile(0.5 + q) is QuantileNearMean(q).
SOK_HOST_DEVICE bool IsNearMean(double q) { return q >= -0.425 && q <= 0.425; }

// Elsewhere the result is meaningless, but the call is safe: vectorized loops compute both and select.
SOK_HOST_DEVICE double QuantileNearMean(double q) {
  const double r = 0.180625 - q * q;
  double above = 2.5090809287301226727e3;
  above = above * r + 3.3430575583588128105e4;
  above = above * r + 6.7265770927008700853e4;
  above = above * r + 4.5921953931549871457e4;
  above = above * r + 1.3731693765509461125e4;
  above = above * r + 1.9715909503065514427e3;
  above = above * r + 1.3314166789178437745e2;
  above = above * r + 3.3871328727963666080e0;
  double below = 5.2264952788528545610e3;
  below = below * r + 2.8729085735721942674e4;
  below = below * r + 3.9307895800092710610e4;
  below = below * r + 2.1213794301586595867e4;
  below = below * r + 5.3941960214247511077e3;
  below = below * r + 6.8718700749205790830e2;
  below = below * r + 4.2313330701600911252e1;
  below = below * r + 1.0;
  return q * above / below;
}

// z with P(Z <= z) = p for a standard normal Z and p in (0, 1), to 16 digits: the rational functions PPND16
// of M. J. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", Applied Statistics
// 37 (1988), one for the middle and two for the tails.
SOK_HOST_DEVICE double NormalQuantile(double p) {
  const double q = p - 0.5;
  if (IsNearMean(q)) return QuantileNearMean(q);
  const double tail = q < 0 ? p : 1.0 - p;
  double r = sqrt(-PortableLog(tail));
  double above;
  double below;
  if (r <= 5.0) {
    r -= 1.6;
    above = 7.74545014278341407640e-4;
    above = above * r + 2.27238449892691845833e-2;
    above = above * r + 2.41780725177450611770e-1;
    above = above * r + 1.27045825245236838258e0;
    above = above * r + 3.64784832476320460504e0;
    above = above * r + 5.76949722146069140550e0;
    above = above * r + 4.63033784615654529590e0;
    above = above * r + 1.42343711074968357734e0;
    below = 1.05075007164441684324e-9;
    below = below * r + 5.47593808499534494600e-4;
    below = below * r + 1.51986665636164571966e-2;
    below = below * r + 1.48103976427480074590e-1;
    below = below * r + 6.89767334985100004550e-1;
    below = below * r + 1.67638483018380384940e0;
    below = below * r + 2.05319162663775882187e0;
    below = below * r + 1.0;
  } else {
    r -= 5.0;
    above = 2.01033439929228813265e-7;
    above = above * r + 2.71155556874348757815e-5;
    above = above * r + 1.24266094738807843860e-3;
    above = above * r + 2.65321895265761230930e-2;
    above = above * r + 2.96560571828504891230e-1;
    above = above * r + 1.78482653991729133580e0;
    above = above * r + 5.46378491116411436990e0;
    above = above * r + 6.65790464350110377720e0;
    below = 2.04426310338993978564e-15;
    below = below * r + 1.42151175831644588870e-7;
    below = below * r + 1.84631831751005468180e-5;
    below = below * r + 7.86869131145613259100e-4;
    below = below * r + 1.48753612908506148525e-2;
    below = below * r + 1.36929880922735805310e-1;
    below = below * r + 5.99832206555887937690e-1;
    below = below * r + 1.0;
  }
  return q < 0 ? -(above / below) : above / below;
}

// Counter-based random numbers: a value is a function of its position, not of the values before it, so it is
// the same on any number of ranks and threads, in any order, and on the GPU.

// The generator state at which the random numbers of one row start.
SOK_HOST_DEVICE uint64_t RowState(uint64_t seed, int64_t key) {
  // The seed is mixed first: a plain xor would give (seed 0, key 1) and (seed 1, key 0) the same row.
  return Mix64(Mix64(seed) ^ static_cast<uint64_t>(key));
}

// 64 random bits for a column of the row: output number `column` of SplitMix64 started at `row_state`. Among
// a billion rows of 64 columns, about three pairs share random bits, in different columns.
SOK_HOST_DEVICE uint64_t ColumnBits(uint64_t row_state, int64_t column) {
  return Mix64(row_state + static_cast<uint64_t>(column) * 0x9e3779b97f4a7c15u);
}

// Uniform in [0, 1), a multiple of 2^-24.
SOK_HOST_DEVICE double UnitHalfOpen(uint64_t bits) {
  return static_cast<double>(static_cast<int32_t>(bits >> 40)) * (1.0 / 16777216.0);
}

// Uniform in (0, 1): the midpoints of 2^52 equal intervals, each exact in double precision. Never 0 or 1, for
// which the inverse of a distribution function is infinite.
SOK_HOST_DEVICE double UnitOpen(uint64_t bits) {
  return (static_cast<double>(static_cast<int64_t>(bits >> 12)) + 0.5) * (1.0 / 4503599627370496.0);
}

// The distributions of Keras's initializers of the same names, and rows that are given.
enum class InitializerKind {
  kConstant,         // a
  kUniform,          // uniform in [a, b)
  kNormal,           // mean a, standard deviation b
  kTruncatedNormal,  // as kNormal, conditioned on being within two standard deviations b of a
  kGiven,            // the rows of `given`
};

// How rows are initialized. The initial row of a key is a function of this and the key alone.
//
// The arguments of a kernel hold one for each table, and their size limits the number of tables in a launch.
// So it has no padding, and members that different kinds need share memory.
struct Initializer {
  constexpr Initializer() = default;
  constexpr Initializer(InitializerKind kind, float a, float b, uint64_t seed, uint32_t rows = 0)
      : kind(kind), a(a), b(b), rows(rows), seed(seed) {}

  InitializerKind kind = InitializerKind::kUniform;
  float a = -0.05f;
  float b = 0.05f;
  // As in DeepRec, keys share this many initial rows: a key has that of its non-negative remainder. 0: each
  // key has its own.
  uint32_t rows = 0;
  union {
    uint64_t seed = 0;  // of the table: a hash of the run's seed and the table's name
    // Of kGiven, once it is known: [rows, dim], in memory of the host or device that reads it.
    const float* given;
  };
};

// The key from which the initial row of `key` is computed.
SOK_HOST_DEVICE int64_t KeyOfInitialRow(const Initializer& initializer, int64_t key) {
  if (initializer.rows == 0) return key;
  const int64_t remainder = key % static_cast<int64_t>(initializer.rows);
  return remainder < 0 ? remainder + static_cast<int64_t>(initializer.rows) : remainder;
}

// The generator state at which the random numbers of a key's initial row start.
SOK_HOST_DEVICE uint64_t InitialRowState(const Initializer& initializer, int64_t key) {
  return RowState(initializer.seed, KeyOfInitialRow(initializer, key));
}

// The standard normal distribution function at a value of kNormal or kTruncatedNormal with mean 0 and
// standard deviation 1.
SOK_HOST_DEVICE double NormalProbability(InitializerKind kind, uint64_t bits) {
  if (kind == InitializerKind::kNormal) return UnitOpen(bits);
  // The distribution function at -2; by symmetry the probability within two standard deviations is 1 - 2
  // tail.
  const double tail = 0.022750131948179207200;
  return tail + (1.0 - 2.0 * tail) * UnitOpen(bits);
}

// The value of one column, unless the row is given, from the bits that belong to it. Results are rounded to
// float once.
SOK_HOST_DEVICE float ValueFromBits(const Initializer& initializer, uint64_t bits) {
  const double a = initializer.a;
  const double b = initializer.b;
  switch (initializer.kind) {
    case InitializerKind::kConstant:
      return initializer.a;
    case InitializerKind::kUniform: {
      const float value = static_cast<float>(a + (b - a) * UnitHalfOpen(bits));
      // Rounding can reach b where floats are coarse. Among the floats in [a, b), only a gets half of its
      // share by rounding, so values that round to b become a.
      return value < initializer.b ? value : initializer.a;
    }
    case InitializerKind::kNormal:
    case InitializerKind::kTruncatedNormal:
      return static_cast<float>(a + b * NormalQuantile(NormalProbability(initializer.kind, bits)));
    case InitializerKind::kGiven:  // has no use for bits
      break;
  }
  return initializer.a;
}

// The row of kGiven with which `key` begins: [dim].
SOK_HOST_DEVICE const float* GivenRow(const Initializer& initializer, int64_t dim, int64_t key) {
  return initializer.given + KeyOfInitialRow(initializer, key) * dim;
}

// The initial value of column `column` >= 0 in the row of `key`, unless the row is given.
SOK_HOST_DEVICE float InitialValue(const Initializer& initializer, int64_t key, int64_t column) {
  return ValueFromBits(initializer, ColumnBits(InitialRowState(initializer, key), column));
}

// row[c] = InitialValue(initializer, key, c) for every column of the row.
void FillRow(const Initializer& initializer, int64_t key, Span<float> row);

}  // namespace sok

#endif  // SOK_CC_INITIALIZERS_INITIALIZER_H_
