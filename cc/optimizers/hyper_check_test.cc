#include "cc/optimizers/hyper_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/optimizers/trained_rows.h"

namespace sok {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const std::vector<float> kNadam = {0.1f, 0.9f, 0.999f, 1e-7f, 0.7f, 0.6f, 0.01f};

struct Case {
  std::string name;
  std::vector<float> good;
  std::vector<float> bad;
  std::vector<std::string> message;  // what it has to contain
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name << " " << c.message.front(); }

class HyperCheckTest : public testing::TestWithParam<Case> {};

TEST_P(HyperCheckTest, RefusesNamingTheValueAndChangesNothing) {
  const Case& c = GetParam();
  InlineExecutor executor;
  TrainedRows rows(c.name, 3, 4, c.good);
  rows.Step(executor, c.good, {0, 2}, std::vector<float>(8, 0.5f));
  ASSERT_TRUE(rows.status().ok()) << rows.status().message();
  const auto before = rows.Records();

  const std::vector<int64_t> touched = {1};
  const std::vector<float> grads(4, 1.0f);
  const Status status = rows.optimizer().Apply(
      executor, c.bad, touched, StoredRowGradients(grads.data(), rows.store().dim()), &rows.store());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rows.optimizer().CheckHyper(c.bad).message(), status.message());
  EXPECT_NE(status.message().find("'" + c.name + "'"), std::string::npos) << status.message();
  for (const std::string& part : c.message) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_EQ(rows.Records(), before);
  EXPECT_EQ(rows.optimizer().steps(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    All, HyperCheckTest,
    testing::Values(
        Case{"sgd", {0.1f}, {}, {"takes 1 ", "learning_rate", "got 0"}},
        Case{"sgd", {0.1f}, {0.1f, 0.2f}, {"takes 1 ", "got 2"}},
        Case{"sgd", {0.1f}, {kNan}, {"learning_rate", "nan"}},
        Case{"sgd", {0.1f}, {kInf}, {"learning_rate", "inf"}},
        Case{"momentum", {0.1f, 0.9f}, {0.1f, -0.25f}, {"momentum must", "-0.25"}},
        Case{"adagrad", {0.1f, 0.1f, 0.0f}, {0.1f, -3.0f, 0.0f}, {"initial_accumulator", "-3"}},
        Case{"adagrad_decay", {0.1f, 0.1f, 0.9f, 0}, {0.1f, 0, 0.9f, 0}, {"initial_accumulator", "got 0"}},
        Case{"adagrad_decay", {0.1f, 0.1f, 0.9f, 0}, {0.1f, 0.1f, 1.5f, 0}, {"decay_rate", "1.5"}},
        Case{"adagrad_decay", {0.1f, 0.1f, 0.9f, 0}, {0.1f, 0.1f, 0.9f, -1.0f}, {"period", "-1"}},
        Case{"rowwise_adagrad", {0.1f, 0.1f, 0.0f}, {0.1f, 0.1f, -1.0f}, {"epsilon", "-1"}},
        Case{"rmsprop", {0.1f, 0.9f, 0.0f, 1e-7f, 1.0f}, {0.1f, 1.5f, 0.0f, 1e-7f, 1.0f}, {"rho", "1.5"}},
        Case{"keras_rmsprop", {0.1f, 0.9f, 1e-7f}, {0.1f, -0.5f, 1e-7f}, {"rho", "-0.5"}},
        Case{
            "ftrl", {0.1f, -0.5f, 0.1f, 0, 0, 0, 0}, {0.0f, -0.5f, 0.1f, 0, 0, 0, 0}, {"learning_rate", "0"}},
        Case{"ftrl", {0.1f, -0.5f, 0.1f, 0, 0, 0, 0}, {0.1f, 0.5f, 0.1f, 0, 0, 0, 0}, {"_power", "0.5"}},
        Case{"ftrl", {0.1f, -0.5f, 0.1f, 0, 0, 0, 0}, {0.1f, -0.5f, 0.1f, 0, 0, kNan, 0}, {"l2_shrinkage"}},
        Case{"adadelta", {0.1f, 0.95f, 1e-7f}, {0.1f, 1.5f, 1e-7f}, {"rho", "1.5"}},
        Case{"adadelta", {0.1f, 0.95f, 1e-7f}, {0.1f, 0.95f, -2.0f}, {"epsilon", "-2"}},
        Case{"adamax", {0.1f, 0.9f, 0.999f, 1e-7f}, {0.1f, 1.0f, 0.999f, 1e-7f}, {"beta1", "got 1"}},
        Case{"adamax", {0.1f, 0.9f, 0.999f, 1e-7f}, {0.1f, 0.9f, 1.25f, 1e-7f}, {"beta2", "1.25"}},
        Case{"nadam", kNadam, {0.1f, -0.5f, 0.999f, 1e-7f, 0.7f, 0.6f, 0.01f}, {"beta1", "-0.5"}},
        Case{"nadam", kNadam, {0.1f, 0.9f, 1.0f, 1e-7f, 0.7f, 0.6f, 0.01f}, {"beta2", "got 1"}},
        Case{"nadam", kNadam, {0.1f, 0.9f, 0.999f, 1e-7f, kInf, 0.6f, 0.01f}, {"gradient_weight", "inf"}},
        Case{"nadam", kNadam, {0.1f, 0.9f, 0.999f, 1e-7f, 0.7f, kNan, 0.01f}, {"moment_weight", "nan"}},
        Case{"nadam", kNadam, {0.1f, 0.9f, 0.999f, 1e-7f, 0.7f, 0.6f, 0.0f}, {"v_correction", "got 0"}},
        Case{"lazy_adam", {0.1f, 0.9f, 0.999f, 1e-8f}, {0.1f, 1.0f, 0.999f, 1e-8f}, {"beta1", "got 1"}},
        Case{"adam", {0.1f, 0.9f, 0.999f, 1e-8f}, {0.1f, 0.9f, 1.25f, 1e-8f}, {"beta2", "1.25"}},
        Case{"adam", {0.1f, 0.9f, 0.999f, 1e-8f}, {kInf, 0.9f, 0.999f, 1e-8f}, {"alpha", "inf"}},
        Case{"adam", {0.1f, 0.9f, 0.999f, 1e-8f}, {0.1f, 0.9f, 0.999f}, {"takes 4 ", "got 3"}}));

}  // namespace
}  // namespace sok
