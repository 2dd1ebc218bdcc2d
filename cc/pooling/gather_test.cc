#include <gtest/gtest.h>

#include <vector>

#include "cc/base/executor.h"
#include "cc/base/thread_pool.h"
#include "cc/pooling/pool.h"
#include "cc/pooling/pool_reference.h"
#include "cc/pooling/random_lookup.h"

namespace sok {
namespace {

TEST(GatherForward, EqualsReferenceForEveryDimAndThreadCount) {
  for (int64_t dim : kAllDims) {
    RandomLookupOptions options;
    options.dim = dim;
    options.zipf = true;
    const RandomLookup lookup = MakeRandomLookup(options, /*seed=*/static_cast<uint64_t>(dim));
    const std::vector<float> expected = GatherReference(lookup.rows, lookup.inverse, dim);
    for (int threads = 1; threads <= 4; ++threads) {
      ThreadPool pool(threads, /*min_block_ns=*/0);
      std::vector<float> out(expected.size(), -1.0f);
      GatherForward(pool, lookup.rows, lookup.inverse, dim, out.data(), dim);
      EXPECT_EQ(out, expected) << dim << " " << threads;
    }
  }
}

TEST(GatherForward, GapsBetweenOutputRowsStay) {
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
