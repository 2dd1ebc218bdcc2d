#include "cc/initializers/initializer.h"

#include <algorithm>

#include "cc/base/vectorize.h"

namespace sok {
namespace {

// Rows with fewer floats would leave vectors mostly empty.
constexpr int64_t kWorthVectors = 4;

// The kind is a compile-time constant, so that the loop has the arithmetic of one distribution only.
template <InitializerKind kKind>
void FillOneByOne(Initializer initializer, int64_t key, Span<float> row) {
  initializer.kind = kKind;
  const uint64_t state = InitialRowState(initializer, key);
  for (int64_t c = 0; c < row.size(); ++c) row[c] = ValueFromBits(initializer, ColumnBits(state, c));
}

// Computes blocks of values in loops that vectorize: first all of them as if they were near the mean, then
// the 15 % that are not once more, one by one.
template <InitializerKind kKind>
void FillNormal(const Initializer& initializer, int64_t key, Span<float> row) {
  constexpr int64_t kValues = 64;
  constexpr int64_t kDoublesInVector = 8;
  const uint64_t state = InitialRowState(initializer, key);
  const double mean = initializer.a;
  const double deviation = initializer.b;
  double probability[kValues];
  double quantile[kValues];
  for (int64_t first = 0; first < row.size(); first += kValues) {
    const int64_t count = std::min(kValues, row.size() - first);
    const int64_t in_vectors = (count + kDoublesInVector - 1) / kDoublesInVector * kDoublesInVector;
    for (int64_t c = 0; c < in_vectors; ++c) {
      probability[c] = NormalProbability(kKind, ColumnBits(state, first + c));
    }
    for (int64_t c = 0; c < in_vectors; ++c) quantile[c] = QuantileNearMean(probability[c] - 0.5);
    for (int64_t c = 0; c < count; ++c) {
      if (!IsNearMean(probability[c] - 0.5)) quantile[c] = NormalQuantile(probability[c]);
    }
    for (int64_t c = 0; c < count; ++c) {
      row[first + c] = static_cast<float>(mean + deviation * quantile[c]);
    }
  }
}

template <InitializerKind kKind>
void Fill(const Initializer& initializer, int64_t key, Span<float> row) {
  if (row.size() < kWorthVectors) return FillOneByOne<kKind>(initializer, key, row);
  RunVectorized([&] {
    if constexpr (kKind == InitializerKind::kUniform) {
      FillOneByOne<kKind>(initializer, key, row);
    } else {
      FillNormal<kKind>(initializer, key, row);
    }
  });
}

}  // namespace

void FillRow(const Initializer& initializer, int64_t key, Span<float> row) {
  switch (initializer.kind) {
    case InitializerKind::kConstant:
      std::fill(row.begin(), row.end(), initializer.a);
      return;
    case InitializerKind::kUniform:
      return Fill<InitializerKind::kUniform>(initializer, key, row);
    case InitializerKind::kNormal:
      return Fill<InitializerKind::kNormal>(initializer, key, row);
    case InitializerKind::kTruncatedNormal:
      return Fill<InitializerKind::kTruncatedNormal>(initializer, key, row);
    case InitializerKind::kGiven:
      std::copy_n(GivenRow(initializer, row.size(), key), row.size(), row.begin());
      return;
  }
}

}  // namespace sok
