#include "cc/cpu/pooling/segment_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/testing/vector_levels.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/pooling/testing/random_lookup.h"
#include "cc/lookup/lookup_input.h"

namespace sok {

// A slow, obvious backward pass. Gradients are summed in the same order as in SegmentSum and agree bit for
// bit; gradients with respect to weights are in double precision.

// The gradient of each of `num_unique` ids, [num_unique, dim].
inline std::vector<float> SegmentSumReference(Span<const int32_t> inverse, int64_t num_unique,
                                              Span<const float* const> grad_rows, Span<const float> scales,
                                              int64_t dim) {
  std::vector<float> out(static_cast<size_t>(num_unique * dim), 0.0f);
  std::vector<float> piece(out.size(), 0.0f);
  std::vector<int64_t> in_piece(static_cast<size_t>(num_unique), 0);
  const auto end_piece = [&](int64_t u) {
    for (int64_t i = u * dim; i < (u + 1) * dim; ++i) {
      out[static_cast<size_t>(i)] += piece[static_cast<size_t>(i)];
      piece[static_cast<size_t>(i)] = 0.0f;
    }
    in_piece[static_cast<size_t>(u)] = 0;
  };
  for (int64_t p = 0; p < inverse.size(); ++p) {
    const int64_t u = inverse[p];
    for (int64_t c = 0; c < dim; ++c) {
      piece[static_cast<size_t>(u * dim + c)] += (scales.empty() ? 1.0f : scales[p]) * grad_rows[p][c];
    }
    if (++in_piece[static_cast<size_t>(u)] == 256) end_piece(u);
  }
  for (int64_t u = 0; u < num_unique; ++u) end_piece(u);
  return out;
}

// d loss / d weights[i], where grad[b, c], [bags, dim], is the gradient of bag b's output: the output is
// f(w) = sum_k w_k r_k / D(w), and f' is taken by the quotient rule.
inline std::vector<double> WeightGradientsReference(Combiner combiner, Span<const float* const> rows,
                                                    Span<const int32_t> inverse, Span<const int64_t> offsets,
                                                    Span<const float> weights, Span<const float> grad,
                                                    int64_t dim) {
  std::vector<double> out(static_cast<size_t>(inverse.size()), 0.0);
  for (int64_t bag = 0; bag + 1 < offsets.size(); ++bag) {
    double sum = 0.0;
    double squares = 0.0;
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      sum += weights[i];
      squares += static_cast<double>(weights[i]) * weights[i];
    }
    const double divisor = combiner == Combiner::kSum    ? 1.0
                           : combiner == Combiner::kMean ? sum
                                                         : std::sqrt(squares);
    if (divisor == 0.0) continue;
    for (int64_t i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      const double slope = combiner == Combiner::kSum    ? 0.0
                           : combiner == Combiner::kMean ? 1.0
                                                         : weights[i] / divisor;
      for (int64_t c = 0; c < dim; ++c) {
        double pooled = 0.0;
        for (int64_t k = offsets[bag]; k < offsets[bag + 1]; ++k) {
          pooled += static_cast<double>(weights[k]) * rows[inverse[k]][c];
        }
        const double derivative = (rows[inverse[i]][c] * divisor - pooled * slope) / (divisor * divisor);
        out[static_cast<size_t>(i)] += grad[bag * dim + c] * derivative;
      }
    }
  }
  return out;
}

namespace {

// The gradients of a lookup's bags, and one pointer per occurrence to its bag's.
struct Gradients {
  std::vector<float> bags;  // [bags, dim]
  std::vector<const float*> rows;
};

Gradients MakeGradients(const RandomLookup& lookup, uint64_t seed) {
  std::mt19937_64 random(seed);
  Gradients gradients;
  gradients.bags = RandomFloats(lookup.bags() * lookup.dim, &random);
  for (int64_t bag = 0; bag < lookup.bags(); ++bag) {
    const size_t b = static_cast<size_t>(bag);
    gradients.rows.insert(gradients.rows.end(),
                          static_cast<size_t>(lookup.offsets[b + 1] - lookup.offsets[b]),
                          gradients.bags.data() + bag * lookup.dim);
  }
  return gradients;
}

std::vector<float> Sum(Executor& executor, const RandomLookup& lookup, const Gradients& gradients,
                       Span<const float> scales) {
  const int64_t unique = static_cast<int64_t>(lookup.rows.size());
  Segments segments;
  BuildSegments(lookup.inverse, unique, &segments);
  std::vector<float> out(static_cast<size_t>(unique * lookup.dim), -1.0f);
  SegmentSum(executor, segments.offsets, segments.positions, gradients.rows, scales, lookup.dim, out.data());
  return out;
}

std::vector<float> Expected(const RandomLookup& lookup, const Gradients& gradients,
                            Span<const float> scales) {
  return SegmentSumReference(lookup.inverse, static_cast<int64_t>(lookup.rows.size()), gradients.rows, scales,
                             lookup.dim);
}

TEST(SegmentSum, EqualsReferenceForEveryDim) {
  InlineExecutor executor;
  for (int64_t dim : kAllDims) {
    RandomLookupOptions options;
    options.dim = dim;
    options.unique = 300;  // some of them without any occurrence
    const RandomLookup lookup = MakeRandomLookup(options, /*seed=*/static_cast<uint64_t>(dim));
    const Gradients gradients = MakeGradients(lookup, /*seed=*/1);
    for (const std::vector<float>& scales : {lookup.weights, std::vector<float>()}) {
      const std::vector<float> expected = Expected(lookup, gradients, scales);
      for (const VectorLevel level : VectorLevels()) {
        const WithVectorLevel with_level(level);
        EXPECT_EQ(Sum(executor, lookup, gradients, scales), expected) << dim;
      }
    }
  }
}

// One id has half of all occurrences, too many for one thread: its columns are split.
TEST(SegmentSum, HotIdIsTheSameForAnyNumberOfThreads) {
  for (int64_t dim : {1, 16, 17, 64, 129}) {
    RandomLookupOptions options;
    options.dim = dim;
    options.unique = 500;
    options.bags = 400;
    options.longest_bag = 60;
    options.zipf = true;
    RandomLookup lookup = MakeRandomLookup(options, /*seed=*/21);
    for (size_t i = 0; i < lookup.inverse.size(); i += 2) lookup.inverse[i] = 7;
    ASSERT_GT(lookup.occurrences(), 2 * 4096) << "the hot id must exceed the limit for splitting";
    const Gradients gradients = MakeGradients(lookup, /*seed=*/1);
    const std::vector<float> expected = Expected(lookup, gradients, lookup.weights);
    for (int threads = 1; threads <= 4; ++threads) {
      ThreadPool pool(threads, /*min_block_ns=*/0);
      EXPECT_EQ(Sum(pool, lookup, gradients, lookup.weights), expected) << dim << " " << threads;
    }
  }
}

// Ids with occurrences around whole numbers of pieces, and rows of more columns than are summed at once.
TEST(SegmentSum, SumsByPieces) {
  for (int64_t dim : {1, 16, 1025, 2050}) {
    RandomLookup lookup;
    lookup.dim = dim;
    int32_t id = 0;
    for (const int occurrences : {1, 255, 256, 257, 511, 512, 513, 1100}) {
      lookup.inverse.insert(lookup.inverse.end(), occurrences, id++);
    }
    std::mt19937_64 random(5);
    std::shuffle(lookup.inverse.begin(), lookup.inverse.end(), random);
    lookup.rows.resize(static_cast<size_t>(id));
    for (int64_t bag = 0; bag <= lookup.occurrences(); ++bag) lookup.offsets.push_back(bag);
    lookup.weights = RandomFloats(lookup.occurrences(), &random);
    const Gradients gradients = MakeGradients(lookup, /*seed=*/1);
    for (const std::vector<float>& scales : {lookup.weights, std::vector<float>()}) {
      const std::vector<float> expected = Expected(lookup, gradients, scales);
      for (int threads = 1; threads <= 2; ++threads) {
        ThreadPool pool(threads, /*min_block_ns=*/0);
        EXPECT_EQ(Sum(pool, lookup, gradients, scales), expected) << dim << " " << threads;
      }
    }
  }
}

TEST(SegmentSum, NoIdsAndNoOccurrences) {
  InlineExecutor executor;
  SegmentSum(executor, {}, {}, {}, {}, 8, nullptr);
  Segments three_without;
  three_without.offsets = {0, 0, 0, 0};
  std::vector<float> out(24, -1.0f);
  SegmentSum(executor, three_without.offsets, {}, {}, {}, 8, out.data());
  EXPECT_EQ(out, std::vector<float>(24, 0.0f));
}

// Weights whose sum is well above zero: a mean's divisor near zero would amplify rounding without bound.
RandomLookup MakePositiveLookup(int64_t dim, uint64_t seed) {
  RandomLookupOptions options;
  options.dim = dim;
  options.zipf = true;
  RandomLookup lookup = MakeRandomLookup(options, seed);
  for (float& weight : lookup.weights) weight = 0.1f + std::fabs(weight);
  return lookup;
}

TEST(WeightGradients, AgreeWithTheQuotientRule) {
  for (int64_t dim : kAllDims) {
    const RandomLookup lookup = MakePositiveLookup(dim, /*seed=*/static_cast<uint64_t>(dim));
    std::mt19937_64 random(7);
    const std::vector<float> grad = RandomFloats(lookup.bags() * dim, &random);
    for (Combiner combiner : kAllCombiners) {
      const std::vector<double> expected = WeightGradientsReference(
          combiner, lookup.rows, lookup.inverse, lookup.offsets, lookup.weights, grad, dim);
      std::vector<float> first;
      for (int threads = 1; threads <= 4; ++threads) {
        ThreadPool pool(threads, /*min_block_ns=*/0);
        std::vector<float> out(expected.size(), -1.0f);
        WeightGradients(pool, combiner, lookup.rows, lookup.inverse, lookup.offsets, lookup.weights,
                        grad.data(), dim, dim, Span<float>(out));
        if (threads == 1) first = out;
        EXPECT_EQ(out, first) << threads;
      }
      // Terms of the dot products are of order 1, and there are dim of them in random signs.
      const double tolerance = 2e-6 * std::sqrt(static_cast<double>(dim)) * 10;
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(first[i], expected[i], tolerance);
    }
  }
}

TEST(WeightGradients, OfRowsIn16BitsAreThoseOfTheNumbersThatTheyStandFor) {
  for (const FloatType type : {FloatType::kFloat16, FloatType::kBfloat16}) {
    for (int64_t dim : kAllDims) {
      const NarrowLookup narrow(MakePositiveLookup(dim, /*seed=*/static_cast<uint64_t>(dim)), type);
      const RandomLookup& lookup = narrow.decoded;
      std::mt19937_64 random(7);
      const std::vector<float> grad = RandomFloats(lookup.bags() * dim, &random);
      ThreadPool pool(2, /*min_block_ns=*/0);
      std::vector<float> out(lookup.inverse.size());
      std::vector<float> expected(lookup.inverse.size());
      for (Combiner combiner : kAllCombiners) {
        WeightGradients(pool, combiner, narrow.rows(), lookup.inverse, lookup.offsets, lookup.weights,
                        grad.data(), dim, dim, Span<float>(out));
        WeightGradients(pool, combiner, lookup.rows, lookup.inverse, lookup.offsets, lookup.weights,
                        grad.data(), dim, dim, Span<float>(expected));
        EXPECT_EQ(out, expected) << NameOf(type) << ", dim " << dim;
      }
    }
  }
}

TEST(WeightGradients, ZeroDivisorGivesZero) {
  InlineExecutor executor;
  RandomLookup lookup = MakeRandomLookup({}, /*seed=*/3);
  lookup.inverse = {0, 1, 2, 3};
  lookup.offsets = {0, 2, 4};
  lookup.weights = {0.5f, -0.5f, 0.0f, 0.0f};
  const std::vector<float> grad(static_cast<size_t>(2 * lookup.dim), 1.0f);
  std::vector<float> out(4, -1.0f);
  WeightGradients(executor, Combiner::kMean, lookup.rows, lookup.inverse, lookup.offsets, lookup.weights,
                  grad.data(), lookup.dim, lookup.dim, Span<float>(out));
  EXPECT_EQ(out, std::vector<float>(4, 0.0f));
}

TEST(WeightGradients, GradientsMayHaveAnyStride) {
  InlineExecutor executor;
  const RandomLookup lookup = MakePositiveLookup(/*dim=*/5, /*seed=*/6);
  std::mt19937_64 random(7);
  const int64_t stride = 9;
  const std::vector<float> apart = RandomFloats(lookup.bags() * stride, &random);
  std::vector<float> dense;
  for (int64_t bag = 0; bag < lookup.bags(); ++bag) {
    dense.insert(dense.end(), apart.begin() + bag * stride, apart.begin() + bag * stride + lookup.dim);
  }
  std::vector<float> from_apart(lookup.inverse.size());
  std::vector<float> from_dense(lookup.inverse.size());
  WeightGradients(executor, Combiner::kSqrtN, lookup.rows, lookup.inverse, lookup.offsets, lookup.weights,
                  apart.data(), stride, lookup.dim, Span<float>(from_apart));
  WeightGradients(executor, Combiner::kSqrtN, lookup.rows, lookup.inverse, lookup.offsets, lookup.weights,
                  dense.data(), lookup.dim, lookup.dim, Span<float>(from_dense));
  EXPECT_EQ(from_apart, from_dense);
}

}  // namespace
}  // namespace sok
