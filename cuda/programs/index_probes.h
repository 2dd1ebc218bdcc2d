// How many buckets a search in the index reads, by the index's load.
#ifndef SOK_CUDA_PROGRAMS_INDEX_PROBES_H_
#define SOK_CUDA_PROGRAMS_INDEX_PROBES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace sok {

// Averages over keys. The index (cuda/index/key_index_view.h) has buckets of 16 places; a key is in its home
// bucket or, if that was full, in one of the next.
struct IndexProbes {
  double found = 1;   // buckets read for a present key
  double absent = 1;  // buckets read for an absent key
};

// The model: hashing gives each bucket a number of keys with the distribution of Poisson(16 * load). A bucket
// keeps 16 of its own keys and of those that the buckets before could not keep, and passes on the rest:
//
//   passed' = max(0, passed + own - 16)
//
// In the stationary state of this chain,
// - the sum over all keys of the buckets between home and place is the number of keys passed on, so a key
//   that is there costs 1 + E(passed) / (16 * load) buckets;
// - a search for an absent key goes on while passed + own >= 16. The expected number of buckets after a
//   bucket that passed on p keys is cost(p) = 1 + sum over a with p + a >= 16 of P(a) * cost(p + a - 16).
//
// For 0 <= load < 1, most accurate up to 0.95. Erased places count as keys in `load` for searches of absent
// keys. Takes milliseconds up to 0.9 and a second at 0.97. Pure.
inline IndexProbes ProbesAtLoad(double load) {
  constexpr int kPlaces = 16;
  constexpr int kMostPassed = 1024;  // P(passed > 1024) is below 1e-9 at a load of 0.98
  constexpr int kMostOwn = 64;
  constexpr double kTolerance = 1e-10;
  const double mean = kPlaces * load;
  if (mean <= 0) return {};
  std::vector<double> own(kMostOwn + 1);
  own[0] = std::exp(-mean);
  for (int a = 1; a <= kMostOwn; ++a) own[a] = own[a - 1] * mean / a;

  // Starts from the values of buckets that pass on nothing, and iterates.
  std::vector<double> passed(kMostPassed + 1, 0.0);
  passed[0] = 1;
  int most = 0;  // the largest number with a probability that matters
  for (double change = 1; change > kTolerance;) {
    std::vector<double> next(kMostPassed + 1, 0.0);
    for (int p = 0; p <= most; ++p) {
      for (int a = 0; a <= kMostOwn; ++a) {
        next[std::min(std::max(0, p + a - kPlaces), kMostPassed)] += passed[p] * own[a];
      }
    }
    change = 0;
    for (size_t p = 0; p < next.size(); ++p) change = std::max(change, std::abs(next[p] - passed[p]));
    passed.swap(next);
    for (most = kMostPassed; most > 0 && passed[most] < 1e-15; --most) continue;
  }

  std::vector<double> cost(kMostPassed + 1, 1.0);
  for (double change = 1; change > 1e-6;) {
    change = 0;
    for (int p = most; p >= 0; --p) {
      double updated = 1;
      for (int a = std::max(0, kPlaces - p); a <= kMostOwn; ++a) {
        updated += own[a] * cost[std::min(p + a - kPlaces, most)];
      }
      change = std::max(change, std::abs(updated - cost[p]));
      cost[p] = updated;
    }
  }

  IndexProbes probes = {1, 0};
  for (int p = 0; p <= most; ++p) {
    probes.found += passed[p] * p / mean;
    probes.absent += passed[p] * cost[p];
  }
  return probes;
}

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_INDEX_PROBES_H_
