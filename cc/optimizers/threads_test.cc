// Every optimizer gives the same bits on any number of threads, and with any vectors.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/base/vector_levels_for_tests.h"
#include "cc/optimizers/trained_rows.h"

namespace sok {
namespace {

struct Case {
  std::string name;
  std::vector<float> hyper;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<std::vector<float>> Train(const Case& c, int threads, int64_t dim) {
  constexpr int64_t kRows = 200;
  ThreadPool pool(threads, /*min_block_ns=*/0);
  TrainedRows rows(c.name, kRows, dim, c.hyper);
  std::mt19937_64 random(5);
  for (int t = 0; t < 25; ++t) {
    const RandomStep step = MakeRandomStep(kRows, dim, 0.3, &random);
    rows.Step(pool, c.hyper, step.rows, step.grads);
    if (t % 7 == 3) rows.CatchUp(pool, MakeRandomStep(kRows, dim, 0.5, &random).rows);
  }
  EXPECT_TRUE(rows.status().ok()) << rows.status().message();
  rows.CatchUp(pool, rows.AllRows());
  return rows.Records();
}

class ThreadsTest : public testing::TestWithParam<Case> {};

TEST_P(ThreadsTest, SameBitsOnAnyNumberOfThreads) {
  const auto expected = Train(GetParam(), 1, 19);
  for (int threads = 2; threads <= 4; ++threads)
    EXPECT_EQ(Train(GetParam(), threads, 19), expected) << threads;
}

TEST_P(ThreadsTest, SameBitsWithAnyVectors) {
  for (const int64_t dim : {1, 7, 16, 19, 32, 64, 128, 130}) {
    std::vector<std::vector<float>> expected;
    for (const VectorLevel level : VectorLevels()) {
      const WithVectorLevel with_level(level);
      const auto trained = Train(GetParam(), 1, dim);
      if (expected.empty()) expected = trained;
      EXPECT_EQ(trained, expected) << "dim " << dim << ", vectors " << static_cast<int>(level);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ThreadsTest,
    testing::Values(Case{"sgd", {0.1f}}, Case{"momentum", {0.1f, 0.9f}}, Case{"nesterov", {0.1f, 0.9f}},
                    Case{"keras_momentum", {0.1f, 0.9f}}, Case{"keras_nesterov", {0.1f, 0.9f}},
                    Case{"adagrad", {0.1f, 0.1f, 0.0f}}, Case{"rowwise_adagrad", {0.1f, 0.1f, 0.0f}},
                    Case{"adagrad_decay", {0.1f, 0.1f, 0.9f, 3.0f}},
                    Case{"rmsprop", {0.1f, 0.9f, 0.8f, 1e-7f, 1.0f}},
                    Case{"rmsprop_centered", {0.1f, 0.9f, 0.8f, 1e-3f, 1.0f}},
                    Case{"keras_rmsprop", {0.1f, 0.9f, 1e-7f}},
                    Case{"keras_rmsprop_centered", {0.1f, 0.9f, 1e-7f}},
                    Case{"ftrl", {0.1f, -0.5f, 0.1f, 0.01f, 0.01f, 0.01f, 0.0f}},
                    Case{"adadelta", {1.0f, 0.95f, 1e-7f}}, Case{"adamax", {0.01f, 0.9f, 0.999f, 1e-7f}},
                    Case{"nadam", {0.01f, 0.9f, 0.999f, 1e-7f, 0.7f, 0.6f, 0.01f}},
                    Case{"lazy_adam", {0.01f, 0.9f, 0.999f, 1e-8f}},
                    Case{"adam", {0.01f, 0.9f, 0.999f, 1e-8f}}, Case{"adam", {0.01f, 0.9f, 0.9f, 1e-8f}}),
    [](const testing::TestParamInfo<Case>& info) {
      return info.param.name + "_" + std::to_string(info.index);
    });

}  // namespace
}  // namespace sok
