#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/thread_pool.h"
#include "cc/pooling/segment_sum.h"
#include "cc/pooling/testing/random_lookup.h"
#include "cc/pooling/testing/segment_sum_reference.h"

namespace sok {
namespace {

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
