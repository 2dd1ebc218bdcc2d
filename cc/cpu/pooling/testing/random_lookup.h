#ifndef SOK_CC_CPU_POOLING_TESTING_RANDOM_LOOKUP_H_
#define SOK_CC_CPU_POOLING_TESTING_RANDOM_LOOKUP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "cc/base/float_types.h"
#include "cc/base/span.h"
#include "cc/cpu/pooling/rows_in_place.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// A random lookup for tests: distinct rows of random numbers, and bags of occurrences that refer to them.
struct RandomLookup {
  int64_t dim = 0;
  std::vector<float> table;        // [unique, dim]
  std::vector<const float*> rows;  // into table
  std::vector<int32_t> inverse;
  std::vector<int64_t> offsets;
  std::vector<float> weights;

  int64_t bags() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t occurrences() const { return static_cast<int64_t>(inverse.size()); }
};

struct RandomLookupOptions {
  int64_t dim = 16;
  int64_t unique = 100;
  int64_t bags = 50;
  int64_t longest_bag = 8;  // lengths are uniform in [0, longest_bag]
  bool zipf = false;        // skewed: row k has probability proportional to 1 / (k + 1)
};

inline std::vector<float> RandomFloats(int64_t n, std::mt19937_64* random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(*random);
  return values;
}

inline RandomLookup MakeRandomLookup(const RandomLookupOptions& options, uint64_t seed) {
  std::mt19937_64 random(seed);
  RandomLookup lookup;
  lookup.dim = options.dim;
  lookup.table = RandomFloats(options.unique * options.dim, &random);
  for (int64_t u = 0; u < options.unique; ++u) lookup.rows.push_back(lookup.table.data() + u * options.dim);

  std::vector<double> popularity(static_cast<size_t>(options.unique), 1.0);
  if (options.zipf) {
    for (size_t k = 0; k < popularity.size(); ++k) popularity[k] = 1.0 / static_cast<double>(k + 1);
  }
  std::discrete_distribution<int32_t> pick(popularity.begin(), popularity.end());
  std::uniform_int_distribution<int64_t> length(0, options.longest_bag);
  lookup.offsets.push_back(0);
  for (int64_t bag = 0; bag < options.bags; ++bag) {
    for (int64_t i = length(random); i > 0; --i) lookup.inverse.push_back(pick(random));
    lookup.offsets.push_back(lookup.occurrences());
  }
  lookup.weights = RandomFloats(lookup.occurrences(), &random);
  return lookup;
}

// The rows of a lookup in 16 bits, and a lookup of the numbers that these stand for.
struct NarrowLookup {
  NarrowLookup(RandomLookup lookup, FloatType type) : decoded(std::move(lookup)), type(type) {
    const bool is_float16 = type == FloatType::kFloat16;
    for (float& value : decoded.table) {
      halves.push_back(is_float16 ? ToFloat16(value) : ToBfloat16(value));
      value = is_float16 ? FromFloat16(halves.back()) : FromBfloat16(halves.back());
    }
    for (const float*& row : decoded.rows) {
      const int64_t at = static_cast<int64_t>(pointers.size()) * decoded.dim;
      pointers.push_back(halves.data() + at);
      row = decoded.table.data() + at;
    }
  }
  RowsInPlace rows() const { return RowsInPlace(pointers, type); }

  RandomLookup decoded;
  std::vector<uint16_t> halves;  // [unique, dim]
  std::vector<const uint16_t*> pointers;
  FloatType type;
};

constexpr Combiner kAllCombiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN};
constexpr int64_t kAllDims[] = {1, 2, 3, 7, 16, 32, 63, 64, 128, 129, 1025};

// Slow, obvious PoolForward and GatherForward: one bag after the other, one column after the other, with the
// same operations in the same order, so that results agree bit for bit.

inline float DivisorReference(Combiner combiner, const std::vector<float>& bag_weights) {
  float sum = 0.0f;
  float squares = 0.0f;
  for (float weight : bag_weights) {
    sum += weight;
    squares += weight * weight;
  }
  if (combiner == Combiner::kMean) return sum;
  if (combiner == Combiner::kSqrtN) return std::sqrt(squares);
  return 1.0f;
}

inline float SumInOrder(const std::vector<float>& terms) {
  float sum = 0.0f;
  for (float term : terms) sum += term;
  return sum;
}

// The first terms, at least two if there are two, and then the sum of each following eight.
inline float SumInEights(const std::vector<float>& terms) {
  size_t next = terms.size() % 8;
  if (next < 2) next = std::min<size_t>(next + 8, terms.size());
  float sum = SumInOrder({terms.begin(), terms.begin() + next});
  for (; next < terms.size(); next += 8) {
    sum += SumInOrder({terms.begin() + next, terms.begin() + next + 8});
  }
  return sum;
}

// As PoolForward; returns the output as a dense [bags, dim].
inline std::vector<float> PoolReference(Span<const float* const> rows, Span<const int32_t> inverse,
                                        Span<const int64_t> offsets, Span<const float> weights,
                                        Combiner combiner, int64_t dim) {
  std::vector<float> out;
  for (int64_t bag = 0; bag + 1 < offsets.size(); ++bag) {
    std::vector<float> bag_weights;
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      bag_weights.push_back(weights.empty() ? 1.0f : weights[i]);
    }
    const float divisor = DivisorReference(combiner, bag_weights);
    for (int64_t c = 0; c < dim; ++c) {
      std::vector<float> terms;
      for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
        terms.push_back(bag_weights[static_cast<size_t>(i - offsets[bag])] * rows[inverse[i]][c]);
      }
      const bool is_zero = terms.empty() || divisor == 0.0f;
      const bool multiplied = weights.empty() && terms.size() < 10;
      const float sum = weights.empty() ? SumInEights(terms) : SumInOrder(terms);
      out.push_back(is_zero ? 0.0f : multiplied ? sum * (1.0f / divisor) : sum / divisor);
    }
  }
  return out;
}

// As GatherForward; returns the output as a dense [occurrences, dim].
inline std::vector<float> GatherReference(Span<const float* const> rows, Span<const int32_t> inverse,
                                          int64_t dim) {
  std::vector<float> out;
  for (int32_t unique : inverse) out.insert(out.end(), rows[unique], rows[unique] + dim);
  return out;
}

}  // namespace sok

#endif  // SOK_CC_CPU_POOLING_TESTING_RANDOM_LOOKUP_H_
