#ifndef SOK_CUDA_PROGRAMS_BENCHMARK_QUARTILES_H_
#define SOK_CUDA_PROGRAMS_BENCHMARK_QUARTILES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace sok {

// A summary of measured values.
struct Quartiles {
  double least = 0, first = 0, median = 0, third = 0, most = 0;
  int values = 0;
  int outliers = 0;  // further than 1.5 times third - first below the first or above the third quartile
};

// Quartiles between two values are interpolated. All 0 for no values.
inline Quartiles QuartilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
  };
  Quartiles result = {values.front(), at(0.25), at(0.5), at(0.75), values.back(), 0, 0};
  result.values = static_cast<int>(values.size());
  const double reach = 1.5 * (result.third - result.first);
  for (const double value : values) {
    if (value < result.first - reach || value > result.third + reach) ++result.outliers;
  }
  return result;
}

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_BENCHMARK_QUARTILES_H_
