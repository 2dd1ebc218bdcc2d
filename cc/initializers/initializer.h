// The initial values of rows, on host and device: the same bits under g++ and nvcc. Neither may fuse a
// multiplication and an addition: compile with -ffp-contract=off and with -fmad=false respectively.
#ifndef SOK_CC_INITIALIZERS_INITIALIZER_H_
#define SOK_CC_INITIALIZERS_INITIALIZER_H_

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/base/span.h"
#include "cc/initializers/normal_quantile.h"
#include "cc/initializers/random_bits.h"

namespace sok {

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
