// Counter-based random numbers: a value is a function of its position, not of the values before it, so it is
// the same on any number of ranks and threads, in any order, and on the GPU.
#ifndef SOK_CC_INITIALIZERS_RANDOM_BITS_H_
#define SOK_CC_INITIALIZERS_RANDOM_BITS_H_

#include <cstdint>

#include "cc/base/hash.h"
#include "cc/base/host_device.h"

namespace sok {

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

}  // namespace sok

#endif  // SOK_CC_INITIALIZERS_RANDOM_BITS_H_
