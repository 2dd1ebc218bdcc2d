// Every optimizer gives the same bits with any number of threads and any vector instructions.
#include <gtest/gtest.h>

#include <vector>

#include "cc/base/testing/vector_levels.h"
#include "cc/base/thread_pool.h"
#include "cc/optimizers/testing/rule_cases.h"
#include "cc/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

std::vector<std::vector<float>> Train(const RuleCase& c, int threads, int64_t dim) {
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

class ThreadsTest : public testing::TestWithParam<RuleCase> {};

TEST_P(ThreadsTest, SameBitsOnAnyNumberOfThreads) {
  const auto expected = Train(GetParam(), 1, 19);
  for (int threads = 2; threads <= 4; ++threads)
    EXPECT_EQ(Train(GetParam(), threads, 19), expected) << threads;
}

TEST_P(ThreadsTest, SameBitsWithAnyVectorInstructions) {
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

INSTANTIATE_TEST_SUITE_P(All, ThreadsTest, testing::ValuesIn(AllRuleCases()),
                         RuleCaseName<testing::TestParamInfo<RuleCase>>);

}  // namespace
}  // namespace sok
