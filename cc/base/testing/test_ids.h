// Batches of ids that tests and benchmarks share.
#ifndef SOK_CC_BASE_TESTING_TEST_IDS_H_
#define SOK_CC_BASE_TESTING_TEST_IDS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cc/base/hash.h"

namespace sok {

// Ids that break containers with reserved keys, signed hashes or casts to 32 bits.
inline std::vector<int64_t> HostileIds() {
  return {0,
          -1,
          1,
          int64_t{1} << 31,
          -(int64_t{1} << 31),
          (int64_t{1} << 32) + 1,
          int64_t{1} << 62,
          std::numeric_limits<int64_t>::max(),
          std::numeric_limits<int64_t>::min()};
}

// `n` ids, uniform over `distinct` values that are spread over all 64 bits.
inline std::vector<int64_t> RandomIds(int64_t n, int64_t distinct, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> uniform(0, distinct - 1);
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) id = static_cast<int64_t>(Mix64(uniform(random)));
  return ids;
}

// `n` ids in [0, distinct) with a Zipf distribution: the k-th most frequent has a frequency proportional to
// k^-exponent. Click logs have an exponent of about 1.05. Frequent ids are not neighbours; distinct must not
// be a multiple of the prime 7919.
inline std::vector<int64_t> ZipfIds(int64_t n, int64_t distinct, double exponent, uint64_t seed) {
  std::vector<double> cumulative(distinct);
  double total = 0;
  for (int64_t k = 0; k < distinct; ++k) cumulative[k] = total += std::pow(k + 1.0, -exponent);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, total);
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) {
    const auto at = std::lower_bound(cumulative.begin(), cumulative.end() - 1, uniform(random));
    id = ((at - cumulative.begin()) * int64_t{7919} + 13) % distinct;
  }
  return ids;
}

// `n` distinct ids.
inline std::vector<int64_t> DistinctIds(int64_t n, uint64_t seed) {
  std::vector<int64_t> ids(n);
  for (int64_t i = 0; i < n; ++i) ids[i] = static_cast<int64_t>(Mix64(Mix64(seed) + i));
  return ids;
}

}  // namespace sok

#endif  // SOK_CC_BASE_TESTING_TEST_IDS_H_
