// Counter-based random numbers: a value is computed from where it belongs, not from the values before it, so
// that it comes out the same on any number of ranks and threads, in any order, and on the GPU.
#ifndef SOK_CC_INITIALIZERS_RANDOM_BITS_H_
#define SOK_CC_INITIALIZERS_RANDOM_BITS_H_

#include <cstdint>

#include "cc/base/hash.h"
#include "cc/base/host_device.h"

namespace sok {

// Where the random numbers of one row start.
SOK_HOST_DEVICE uint64_t RowState(uint64_t seed, int64_t key) {
  // The seed is mixed first: xor-ing it in as it is would give (seed 0, key 1) and (seed 1, key 0) one row.
  return Mix64(Mix64(seed) ^ static_cast<uint64_t>(key));
}

// 64 random bits for a column of the row: output number `column` of SplitMix64 started at `row_state`. Of a
// thousand million rows, about three pairs share a stretch of their streams at a distance of some columns.
SOK_HOST_DEVICE uint64_t ColumnBits(uint64_t row_state, int64_t column) {
  return Mix64(row_state + static_cast<uint64_t>(column) * 0x9e3779b97f4a7c15u);
}

// Uniform in [0, 1), a multiple of 2^-24.
SOK_HOST_DEVICE double UnitHalfOpen(uint64_t bits) {
  return static_cast<double>(static_cast<int32_t>(bits >> 40)) * (1.0 / 16777216.0);
}

// Uniform in (0, 1): the middles of 2^52 equal intervals, each of which a double holds exactly. Neither 0 nor
// 1, which the inverse of a distribution function would send to infinity.
SOK_HOST_DEVICE double UnitOpen(uint64_t bits) {
  return (static_cast<double>(static_cast<int64_t>(bits >> 12)) + 0.5) * (1.0 / 4503599627370496.0);
}

}  // namespace sok

#endif  // SOK_CC_INITIALIZERS_RANDOM_BITS_H_
