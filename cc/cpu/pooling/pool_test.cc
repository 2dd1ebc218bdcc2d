#include "cc/cpu/pooling/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/huge_pages.h"
#include "cc/base/testing/vector_levels.h"
#include "cc/base/thread_pool.h"
#include "cc/cpu/pooling/segment_sum.h"
#include "cc/cpu/pooling/testing/random_lookup.h"

namespace sok {
namespace {

std::vector<float> Pool(Executor& executor, const RandomLookup& lookup, Span<const float> weights,
                        Combiner combiner) {
  std::vector<float> out(static_cast<size_t>(lookup.bags() * lookup.dim), -1.0f);
  PoolForward(executor, lookup.rows, lookup.inverse, lookup.offsets, weights, combiner, lookup.dim,
              out.data(), lookup.dim);
  return out;
}

std::vector<float> Expected(const RandomLookup& lookup, Span<const float> weights, Combiner combiner) {
  return PoolReference(lookup.rows, lookup.inverse, lookup.offsets, weights, combiner, lookup.dim);
}

TEST(PoolForward, EqualsReferenceForEveryDimAndCombiner) {
  InlineExecutor executor;
  for (int64_t dim : kAllDims) {
    RandomLookupOptions options;
    options.dim = dim;
    options.longest_bag = 35;
    const RandomLookup lookup = MakeRandomLookup(options, /*seed=*/static_cast<uint64_t>(dim));
    for (Combiner combiner : kAllCombiners) {
      for (const std::vector<float>& weights : {lookup.weights, std::vector<float>()}) {
        const std::vector<float> expected = Expected(lookup, weights, combiner);
        for (const VectorLevel level : VectorLevels()) {
          const WithVectorLevel with_level(level);
          EXPECT_EQ(Pool(executor, lookup, weights, combiner), expected) << dim;
        }
      }
    }
  }
}

TEST(PoolForward, SkewedLookupIsTheSameForAnyNumberOfThreads) {
  RandomLookupOptions options;
  options.unique = 3000;
  options.bags = 700;
  options.longest_bag = 60;
  options.zipf = true;
  const RandomLookup lookup = MakeRandomLookup(options, /*seed=*/11);
  for (Combiner combiner : kAllCombiners) {
    for (const std::vector<float>& weights : {lookup.weights, std::vector<float>()}) {
      const std::vector<float> expected = Expected(lookup, weights, combiner);
      for (int threads = 1; threads <= 4; ++threads) {
        ThreadPool pool(threads, /*min_block_ns=*/0);
        EXPECT_EQ(Pool(pool, lookup, weights, combiner), expected) << threads;
      }
    }
  }
}

TEST(RowsIn16Bits, ArePooledAndGatheredAsTheNumbersThatTheyStandFor) {
  for (const FloatType type : {FloatType::kFloat16, FloatType::kBfloat16}) {
    for (int64_t dim : kAllDims) {
      RandomLookupOptions options;
      options.dim = dim;
      options.longest_bag = 35;
      const NarrowLookup lookup(MakeRandomLookup(options, /*seed=*/static_cast<uint64_t>(dim)), type);
      const RandomLookup& decoded = lookup.decoded;
      for (const VectorLevel level : VectorLevels()) {
        const WithVectorLevel with_level(level);
        ThreadPool pool(1 + dim % 4, /*min_block_ns=*/0);
        for (Combiner combiner : kAllCombiners) {
          for (const std::vector<float>& weights : {decoded.weights, std::vector<float>()}) {
            std::vector<float> out(static_cast<size_t>(decoded.bags() * dim), -1.0f);
            PoolForward(pool, lookup.rows(), decoded.inverse, decoded.offsets, weights, combiner, dim,
                        out.data(), dim);
            ASSERT_EQ(out, Expected(decoded, weights, combiner)) << NameOf(type) << ", dim " << dim;
          }
        }
        const std::vector<float> gathered = GatherReference(decoded.rows, decoded.inverse, dim);
        for (const OutputStores stores : {OutputStores::kCached, OutputStores::kStreamed}) {
          StatusOr<PageBuffer> memory =  // aligned, as only such outputs are streamed
              PageBuffer::Allocate(static_cast<int64_t>(gathered.size() * sizeof(float)));
          ASSERT_TRUE(memory.ok());
          float* const out = static_cast<float*>(memory.value().data());
          GatherForward(pool, lookup.rows(), decoded.inverse, dim, out, dim, stores);
          ASSERT_TRUE(std::equal(gathered.begin(), gathered.end(), out)) << dim;
        }
        std::vector<uint16_t> copied(gathered.size() + 2);
        std::vector<float> as_stored((gathered.size() + 1) / 2);
        GatherAsStored(pool, lookup.rows(), decoded.inverse, dim, as_stored.data());
        std::memcpy(copied.data(), as_stored.data(), gathered.size() * sizeof(uint16_t));
        for (size_t i = 0; i < gathered.size(); ++i) {
          const float value = type == FloatType::kFloat16 ? FromFloat16(copied[i]) : FromBfloat16(copied[i]);
          ASSERT_EQ(value, gathered[i]) << i;
        }
      }
    }
  }
}

TEST(PoolForward, EveryLengthOfABagWithoutWeights) {
  InlineExecutor executor;
  RandomLookup lookup = MakeRandomLookup({}, /*seed=*/4);
  lookup.inverse.clear();
  lookup.offsets = {0};
  for (int32_t length = 0; length <= 70; ++length) {
    for (int32_t i = 0; i < length; ++i) {
      lookup.inverse.push_back(static_cast<int32_t>((7 * i + length) % lookup.rows.size()));
    }
    lookup.offsets.push_back(static_cast<int64_t>(lookup.inverse.size()));
  }
  for (Combiner combiner : kAllCombiners) {
    EXPECT_EQ(Pool(executor, lookup, {}, combiner), Expected(lookup, {}, combiner));
  }
}

TEST(PoolForward, OneBagHoldsNearlyEverything) {
  RandomLookup lookup = MakeRandomLookup({}, /*seed=*/5);
  // Empty bags at both ends, and between them one bag with all occurrences but one.
  const int64_t n = lookup.occurrences();
  lookup.offsets = {0, 0, 0, n - 1, n - 1, n, n, n};
  const std::vector<float> expected = Expected(lookup, lookup.weights, Combiner::kSqrtN);
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads, /*min_block_ns=*/0);
    EXPECT_EQ(Pool(pool, lookup, lookup.weights, Combiner::kSqrtN), expected);
  }
}

TEST(PoolForward, EmptyBagsAndZeroDivisorsGiveZeros) {
  InlineExecutor executor;
  RandomLookup lookup = MakeRandomLookup({}, /*seed=*/3);
  lookup.inverse = {0, 1, 2, 3, 4};
  lookup.offsets = {0, 2, 2, 4, 5};
  lookup.weights = {0.5f, -0.5f, 0.0f, 0.0f, 2.0f};
  const std::vector<float> mean = Pool(executor, lookup, lookup.weights, Combiner::kMean);
  const std::vector<float> sqrtn = Pool(executor, lookup, lookup.weights, Combiner::kSqrtN);
  for (int64_t c = 0; c < lookup.dim; ++c) {
    const auto at = [&](const std::vector<float>& out, int64_t bag) {
      return out[static_cast<size_t>(bag * lookup.dim + c)];
    };
    EXPECT_EQ(at(mean, 0), 0.0f);  // weights cancel
    EXPECT_NE(at(sqrtn, 0), 0.0f);
    for (const auto& out : {mean, sqrtn}) {
      EXPECT_EQ(at(out, 1), 0.0f);  // no occurrence
      EXPECT_EQ(at(out, 2), 0.0f);  // all weights zero
      EXPECT_EQ(at(out, 3), lookup.rows[4][c]);
    }
  }
}

// One pointer for each occurrence.
std::vector<const float*> RowsOfOccurrences(const RandomLookup& lookup) {
  std::vector<const float*> rows;
  for (const int32_t unique : lookup.inverse) rows.push_back(lookup.rows[unique]);
  return rows;
}

TEST(PoolRows, EqualsReferenceForEveryDimAndCombiner) {
  for (int64_t dim : kAllDims) {
    RandomLookupOptions options;
    options.dim = dim;
    options.longest_bag = 35;
    const RandomLookup lookup = MakeRandomLookup(options, /*seed=*/static_cast<uint64_t>(dim));
    const std::vector<const float*> rows = RowsOfOccurrences(lookup);
    for (Combiner combiner : kAllCombiners) {
      const std::vector<float> expected = Expected(lookup, {}, combiner);
      for (const VectorLevel level : VectorLevels()) {
        const WithVectorLevel with_level(level);
        std::vector<float> out(expected.size(), -1.0f);
        PoolRows(rows, lookup.offsets, combiner, dim, out.data(), dim);
        EXPECT_EQ(out, expected) << dim;
      }
    }
  }
}

TEST(PoolRows, WritesTheFirstBagToTheBeginningOfTheOutput) {
  const RandomLookup lookup = MakeRandomLookup({}, /*seed=*/10);
  const std::vector<const float*> rows = RowsOfOccurrences(lookup);
  const std::vector<float> expected = Expected(lookup, {}, Combiner::kMean);
  const int64_t first = 7;
  const Span<const int64_t> offsets = Span<const int64_t>(lookup.offsets).subspan(first, 12);
  std::vector<float> out(11 * lookup.dim, -1.0f);
  PoolRows(Span<const float* const>(rows).subspan(offsets[0], offsets[11] - offsets[0]), offsets,
           Combiner::kMean, lookup.dim, out.data(), lookup.dim);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), expected.begin() + first * lookup.dim));
  PoolRows({}, {}, Combiner::kMean, 4, nullptr, 4);
}

TEST(PoolForward, NoBags) {
  InlineExecutor executor;
  for (const std::vector<int64_t>& offsets : {std::vector<int64_t>{}, std::vector<int64_t>{0}}) {
    PoolForward(executor, {}, {}, offsets, {}, Combiner::kMean, 4, nullptr, 4);
    EXPECT_TRUE(PoolReference({}, {}, offsets, {}, Combiner::kMean, 4).empty());
  }
}

TEST(PoolForward, DoesNotWriteBetweenOutputRows) {
  const RandomLookup lookup = MakeRandomLookup({}, /*seed=*/8);
  constexpr float kGap = 77.0f;
  const int64_t stride = lookup.dim + 3;
  std::vector<float> out(static_cast<size_t>(lookup.bags() * stride), kGap);
  ThreadPool pool(3, /*min_block_ns=*/0);
  PoolForward(pool, lookup.rows, lookup.inverse, lookup.offsets, {}, Combiner::kMean, lookup.dim, out.data(),
              stride);
  const std::vector<float> expected = Expected(lookup, {}, Combiner::kMean);
  for (int64_t bag = 0; bag < lookup.bags(); ++bag) {
    for (int64_t c = 0; c < stride; ++c) {
      const float value = out[static_cast<size_t>(bag * stride + c)];
      EXPECT_EQ(value, c < lookup.dim ? expected[static_cast<size_t>(bag * lookup.dim + c)] : kGap);
    }
  }
}

TEST(PoolForward, OffsetsNeedNotStartAtZero) {
  RandomLookup lookup = MakeRandomLookup({}, /*seed=*/9);
  lookup.offsets.erase(lookup.offsets.begin(), lookup.offsets.begin() + 5);
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads, /*min_block_ns=*/0);
    EXPECT_EQ(Pool(pool, lookup, lookup.weights, Combiner::kSum),
              Expected(lookup, lookup.weights, Combiner::kSum));
  }
}

TEST(GatherForward, EqualsReferenceForEveryDimAndThreadCount) {
  for (int64_t dim : kAllDims) {
    RandomLookupOptions options;
    options.dim = dim;
    options.zipf = true;
    const RandomLookup lookup = MakeRandomLookup(options, /*seed=*/static_cast<uint64_t>(dim));
    const std::vector<float> expected = GatherReference(lookup.rows, lookup.inverse, dim);
    for (const VectorLevel level : VectorLevels()) {
      const WithVectorLevel with_level(level);
      for (int threads = 1; threads <= 4; ++threads) {
        ThreadPool pool(threads, /*min_block_ns=*/0);
        std::vector<float> out(expected.size(), -1.0f);
        GatherForward(pool, lookup.rows, lookup.inverse, dim, out.data(), dim);
        EXPECT_EQ(out, expected) << dim << " " << threads;
      }
    }
  }
}

// Rows of whole cache lines, and rows that are not streamed: short ones, odd strides, unaligned outputs.
TEST(GatherForward, DoesNotWriteBetweenOutputRows) {
  constexpr float kGap = 77.0f;
  for (const VectorLevel level : VectorLevels()) {
    const WithVectorLevel with_level(level);
    for (int64_t dim : kAllDims) {
      const RandomLookup lookup = MakeRandomLookup({dim}, /*seed=*/static_cast<uint64_t>(dim));
      for (const int64_t gap : {0, 1, 16}) {
        for (const auto& [shift, stores] : {std::pair<int64_t, OutputStores>{0, OutputStores::kStreamed},
                                            {1, OutputStores::kStreamed},
                                            {4, OutputStores::kStreamed},
                                            {0, OutputStores::kCached}}) {
          const int64_t stride = dim + gap;
          StatusOr<PageBuffer> memory = PageBuffer::Allocate((lookup.occurrences() * stride + shift) *
                                                             static_cast<int64_t>(sizeof(float)));
          ASSERT_TRUE(memory.ok());
          float* const out = static_cast<float*>(memory.value().data()) + shift;
          std::fill(out, out + lookup.occurrences() * stride, kGap);
          ThreadPool pool(2, /*min_block_ns=*/0);
          GatherForward(pool, lookup.rows, lookup.inverse, dim, out, stride, stores);
          for (int64_t i = 0; i < lookup.occurrences(); ++i) {
            const float* const row = lookup.rows[static_cast<size_t>(lookup.inverse[static_cast<size_t>(i)])];
            ASSERT_TRUE(std::equal(row, row + dim, out + i * stride)) << dim << " " << gap << " " << shift;
            ASSERT_EQ(std::count(out + i * stride + dim, out + (i + 1) * stride, kGap), gap);
          }
        }
      }
    }
  }
}

TEST(CopyRows, EqualsGatherForward) {
  for (int64_t dim : kAllDims) {
    const RandomLookup lookup = MakeRandomLookup({dim}, /*seed=*/static_cast<uint64_t>(dim));
    std::vector<const float*> rows;
    for (const int32_t unique : lookup.inverse) rows.push_back(lookup.rows[unique]);
    const std::vector<float> expected = GatherReference(lookup.rows, lookup.inverse, dim);
    for (const VectorLevel level : VectorLevels()) {
      const WithVectorLevel with_level(level);
      for (const OutputStores stores : {OutputStores::kCached, OutputStores::kStreamed}) {
        StatusOr<PageBuffer> memory =
            PageBuffer::Allocate(static_cast<int64_t>(expected.size() * sizeof(float)));
        ASSERT_TRUE(memory.ok());
        float* const out = static_cast<float*>(memory.value().data());
        CopyRows(rows, dim, out, dim, stores);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out)) << dim;
      }
    }
  }
}

TEST(GatherForward, OneRowAndNone) {
  InlineExecutor executor;
  const RandomLookup lookup = MakeRandomLookup({}, /*seed=*/4);
  std::vector<float> out(static_cast<size_t>(lookup.dim));
  GatherForward(executor, lookup.rows, std::vector<int32_t>{42}, lookup.dim, out.data(), lookup.dim);
  EXPECT_EQ(out, std::vector<float>(lookup.rows[42], lookup.rows[42] + lookup.dim));
  GatherForward(executor, {}, {}, lookup.dim, nullptr, lookup.dim);
}

// The output of a bag equals the sum of scales[i] * row i.
TEST(BagScales, AreWeightsOverDivisor) {
  const RandomLookup lookup = MakeRandomLookup({}, /*seed=*/1);
  for (Combiner combiner : kAllCombiners) {
    std::vector<float> scales(static_cast<size_t>(lookup.occurrences()), -1.0f);
    BagScales(combiner, lookup.offsets, lookup.weights, Span<float>(scales));
    for (size_t bag = 0; bag + 1 < lookup.offsets.size(); ++bag) {
      const auto begin = lookup.weights.begin() + lookup.offsets[bag];
      const auto end = lookup.weights.begin() + lookup.offsets[bag + 1];
      const float divisor = DivisorReference(combiner, std::vector<float>(begin, end));
      for (auto weight = begin; weight != end; ++weight) {
        EXPECT_EQ(scales[static_cast<size_t>(weight - lookup.weights.begin())], *weight / divisor);
      }
    }
  }
}

TEST(BagScales, WithoutWeightsDependOnTheLengthAlone) {
  std::vector<float> scales(5, -1.0f);
  const std::vector<int64_t> offsets = {0, 4, 4, 5};
  BagScales(Combiner::kSum, offsets, {}, Span<float>(scales));
  EXPECT_EQ(scales, (std::vector<float>{1.0f, 1.0f, 1.0f, 1.0f, 1.0f}));
  BagScales(Combiner::kMean, offsets, {}, Span<float>(scales));
  EXPECT_EQ(scales, (std::vector<float>{0.25f, 0.25f, 0.25f, 0.25f, 1.0f}));
  BagScales(Combiner::kSqrtN, offsets, {}, Span<float>(scales));
  EXPECT_EQ(scales, (std::vector<float>{0.5f, 0.5f, 0.5f, 0.5f, 1.0f}));
}

TEST(BagScales, AreZeroIfTheDivisorIsZero) {
  std::vector<float> scales(4, -1.0f);
  const std::vector<float> weights = {0.5f, -0.5f, 0.0f, 0.0f};
  const std::vector<int64_t> offsets = {0, 2, 4};
  BagScales(Combiner::kMean, offsets, weights, Span<float>(scales));
  EXPECT_EQ(scales, std::vector<float>(4, 0.0f));
}

}  // namespace
}  // namespace sok
