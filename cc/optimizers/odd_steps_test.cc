// Every optimizer: steps without rows, and NaN gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cc/base/executor.h"
#include "cc/optimizers/testing/rule_cases.h"
#include "cc/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

class OddStepsTest : public testing::TestWithParam<RuleCase> {};

TEST_P(OddStepsTest, AStepWithoutRowsCounts) {
  InlineExecutor executor;
  const auto& [name, hyper] = GetParam();
  TrainedRows rows(name, 3, 5, hyper);
  const auto before = rows.Records();
  rows.Step(executor, hyper, {}, {});
  rows.Step(executor, hyper, {}, {});
  EXPECT_TRUE(rows.status().ok()) << rows.status().message();
  EXPECT_EQ(rows.optimizer().steps(), 2);
  rows.CatchUp(executor, rows.AllRows());
  EXPECT_EQ(rows.Records(), before);
}

// As in TensorFlow, a NaN gradient makes its element NaN. It must not affect other elements.
TEST_P(OddStepsTest, NanAffectsOnlyItsElement) {
  constexpr int64_t kDim = 5;
  InlineExecutor executor;
  const auto& [name, hyper] = GetParam();
  TrainedRows spoilt(name, 3, kDim, hyper);
  TrainedRows sound(name, 3, kDim, hyper);
  std::vector<float> grads(2 * kDim, 0.5f);
  sound.Step(executor, hyper, {2, 0}, grads);
  grads[1] = std::numeric_limits<float>::quiet_NaN();  // element 1 of row 2
  spoilt.Step(executor, hyper, {2, 0}, grads);
  for (TrainedRows* rows : {&spoilt, &sound}) {
    rows->Step(executor, hyper, {}, {});
    rows->CatchUp(executor, rows->AllRows());
  }
  EXPECT_TRUE(std::isnan(spoilt.Record(2)[1]));
  EXPECT_EQ(spoilt.Record(0), sound.Record(0));
  EXPECT_EQ(spoilt.Record(1), sound.Record(1));
  const std::vector<float> row = spoilt.Record(2);
  const size_t element_floats = row.size() / kDim * kDim;
  // A norm, and a slot with one number per row, may spread a NaN to all elements of the row.
  if (GetParam().rule().mixes_elements) return;
  for (size_t i = 0; i < row.size(); ++i) {
    if (i < element_floats && i % kDim == 1) continue;
    EXPECT_EQ(row[i], sound.Record(2)[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OddStepsTest, testing::ValuesIn(OneCasePerRule()),
                         RuleCaseName<testing::TestParamInfo<RuleCase>>);

}  // namespace
}  // namespace sok
