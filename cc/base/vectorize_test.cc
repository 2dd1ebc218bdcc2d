#include "cc/base/vectorize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cc/base/testing/vector_levels.h"

namespace sok {
namespace {

// A loop with all operations of optimizers and pooling: sums of products, which a compiler might fuse, a
// square root, a quotient and a condition.
void Update(const std::vector<float>& g, std::vector<float>* w, std::vector<float>* v) {
  const float* __restrict in = g.data();
  float* __restrict weights = w->data();
  float* __restrict squares = v->data();
  const int64_t n = static_cast<int64_t>(g.size());
  for (int64_t i = 0; i < n; ++i) {
    squares[i] = 0.9f * squares[i] + 0.1f * in[i] * in[i];
    weights[i] -= 0.3f * in[i] / (std::sqrt(squares[i]) + (in[i] == 0.0f ? 1.0f : 1e-8f));
  }
}

void ExpectBitsOfThePlainLoop() {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  for (size_t n : {0, 1, 3, 4, 7, 8, 9, 31, 1000}) {
    std::vector<float> g(n);
    for (float& value : g) value = normal(random);
    if (n > 2) g[2] = 0.0f;
    std::vector<float> plain_w(n, 0.5f);
    std::vector<float> plain_v(n, 0.1f);
    std::vector<float> w = plain_w;
    std::vector<float> v = plain_v;
    int calls = 0;
    for (int step = 0; step < 20; ++step) {
      Update(g, &plain_w, &plain_v);
      RunVectorized([&] {
        Update(g, &w, &v);
        ++calls;
      });
    }
    EXPECT_EQ(calls, 20);
    EXPECT_EQ(w, plain_w) << n;
    EXPECT_EQ(v, plain_v) << n;
  }
}

TEST(RunVectorized, GivesTheBitsOfThePlainLoop) {
  for (const VectorLevel level : VectorLevels()) {
    SCOPED_TRACE(static_cast<int>(level));
    const WithVectorLevel with_level(level);
    ExpectBitsOfThePlainLoop();
  }
}

TEST(RunVectorized, UsesTheWidestVectorsByDefault) { EXPECT_EQ(vector_level, SupportedVectorLevel()); }

}  // namespace
}  // namespace sok
