#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_DRAW_IDS_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_DRAW_IDS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace sok {

// How ids are drawn from the keys [0, keys) of a table.
struct IdsDrawn {
  double zipf = 0;  // the exponent, see DrawIds; 0: uniformly

  std::string name() const;  // "uniform", "zipf 1.05"
};

// `n` ids of the keys [0, keys). The k-th most frequent has a probability proportional to k^-zipf; frequent
// ids are spread over the keys. Takes no memory for the keys. Deterministic.
std::vector<int64_t> DrawIds(const IdsDrawn& drawn, int64_t n, int64_t keys, uint64_t seed);

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_DRAW_IDS_H_
