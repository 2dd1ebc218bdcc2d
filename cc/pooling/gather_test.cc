#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/huge_pages.h"
#include "cc/base/testing/vector_levels.h"
#include "cc/base/thread_pool.h"
#include "cc/pooling/pool.h"
#include "cc/pooling/testing/pool_reference.h"
#include "cc/pooling/testing/random_lookup.h"

namespace sok {
namespace {

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
TEST(GatherForward, StreamedOutputsAreTheSame) {
  constexpr float kGap = 77.0f;
  for (const VectorLevel level : VectorLevels()) {
    const WithVectorLevel with_level(level);
    for (int64_t dim : kAllDims) {
      const RandomLookup lookup = MakeRandomLookup({dim}, /*seed=*/static_cast<uint64_t>(dim));
      for (const int64_t gap : {0, 1, 16}) {
        for (const int64_t shift : {0, 1, 4}) {
          const int64_t stride = dim + gap;
          StatusOr<PageBuffer> memory = PageBuffer::Allocate((lookup.occurrences() * stride + shift) *
                                                             static_cast<int64_t>(sizeof(float)));
          ASSERT_TRUE(memory.ok());
          float* const out = static_cast<float*>(memory.value().data()) + shift;
          std::fill(out, out + lookup.occurrences() * stride, kGap);
          ThreadPool pool(2, /*min_block_ns=*/0);
          GatherForward(pool, lookup.rows, lookup.inverse, dim, out, stride, OutputStores::kStreamed);
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

TEST(GatherForward, DoesNotWriteBetweenOutputRows) {
  const RandomLookup lookup = MakeRandomLookup({}, /*seed=*/2);
  constexpr float kGap = 77.0f;
  const int64_t stride = lookup.dim + 1;
  std::vector<float> out(static_cast<size_t>(lookup.occurrences() * stride), kGap);
  InlineExecutor executor;
  GatherForward(executor, lookup.rows, lookup.inverse, lookup.dim, out.data(), stride);
  for (int64_t i = 0; i < lookup.occurrences(); ++i) {
    const float* row = out.data() + i * stride;
    for (int64_t c = 0; c < lookup.dim; ++c) {
      EXPECT_EQ(row[c], lookup.rows[static_cast<size_t>(lookup.inverse[static_cast<size_t>(i)])][c]);
    }
    EXPECT_EQ(row[lookup.dim], kGap);
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

}  // namespace
}  // namespace sok
