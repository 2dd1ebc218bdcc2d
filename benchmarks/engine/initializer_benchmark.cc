// Initial values, in M values/s, compared with a copy of as many floats.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/engine/comparison.h"
#include "cc/initializers/initializer.h"

namespace sok {
namespace {

constexpr int kRounds = 11;
constexpr int64_t kValues = 1 << 20;

void Compare(int64_t dim) {
  std::vector<float> rows(kValues);
  const std::vector<float> source(kValues, 1.0f);
  const auto fill = [&](InitializerKind kind) {
    const Initializer initializer{kind, -0.05f, 0.05f, 7};
    for (int64_t row = 0; row < kValues / dim; ++row) {
      FillRow(initializer, row, Span<float>(rows.data() + row * dim, dim));
    }
  };
  Comparison comparison("Rows of " + std::to_string(dim) + " values, 1 thread", kValues);
  comparison.Add("copy", [&] { std::copy(source.begin(), source.end(), rows.begin()); });
  comparison.Add("uniform", [&] { fill(InitializerKind::kUniform); });
  comparison.Add("normal", [&] { fill(InitializerKind::kNormal); });
  comparison.Add("truncated normal", [&] { fill(InitializerKind::kTruncatedNormal); });
  comparison.Run(kRounds);
}

}  // namespace
}  // namespace sok

int main() {
  for (const int64_t dim : {1, 16, 128}) sok::Compare(dim);
  return 0;
}
