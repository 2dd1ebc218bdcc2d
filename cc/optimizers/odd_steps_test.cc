// Every optimizer: steps without rows, and gradients that are no numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/optimizers/trained_rows.h"

namespace sok {
namespace {

class OddStepsTest : public testing::TestWithParam<const char*> {};

// Values that are in range for every hyper-parameter of every optimizer.
std::vector<float> Hyper(const char* name) {
  std::vector<float> hyper(MakeOptimizer(name).value()->hyper_parameters().size(), 0.25f);
  if (std::string(name) == "ftrl") hyper[1] = -0.5f;
  return hyper;
}

TEST_P(OddStepsTest, AStepWithoutRowsIsAStep) {
  InlineExecutor executor;
  TrainedRows rows(GetParam(), 3, 5, Hyper(GetParam()));
  const auto before = rows.Records();
  rows.Step(executor, Hyper(GetParam()), {}, {});
  rows.Step(executor, Hyper(GetParam()), {}, {});
  EXPECT_TRUE(rows.status().ok()) << rows.status().message();
  EXPECT_EQ(rows.optimizer().steps(), 2);
  rows.CatchUp(executor, rows.AllRows());
  EXPECT_EQ(rows.Records(), before);
}

// As in TensorFlow, a gradient that is no number spoils the element that it belongs to. It must not spoil
// others.
TEST_P(OddStepsTest, NanStaysWhereItIs) {
  constexpr int64_t kDim = 5;
  InlineExecutor executor;
  const std::vector<float> hyper = Hyper(GetParam());
  TrainedRows spoilt(GetParam(), 3, kDim, hyper);
  TrainedRows sound(GetParam(), 3, kDim, hyper);
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
  if (std::string(GetParam()) == "rowwise_adagrad") return;  // its accumulator belongs to the whole row
  for (size_t i = 0; i < spoilt.Record(2).size(); ++i) {
    if (i % kDim == 1) continue;
    EXPECT_EQ(spoilt.Record(2)[i], sound.Record(2)[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OddStepsTest,
                         testing::Values("sgd", "momentum", "nesterov", "keras_momentum", "keras_nesterov",
                                         "adagrad", "adagrad_decay", "rowwise_adagrad", "rmsprop",
                                         "rmsprop_centered", "keras_rmsprop", "keras_rmsprop_centered",
                                         "ftrl", "adadelta", "adamax", "nadam", "lazy_adam", "adam"));

}  // namespace
}  // namespace sok
