#include "cc/optimizers/rule_info.h"

#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/optimizers/testing/rule_cases.h"
#include "cc/optimizers/testing/trained_rows.h"

namespace sok {
namespace {

using Limits = std::numeric_limits<float>;

constexpr float kNotFinite[] = {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()};

struct RangeCase {
  HyperRange range;
  std::vector<float> good;
  std::vector<float> bad;  // beside NaN and infinity
};

const std::vector<RangeCase> kRanges = {
    {HyperRange::kFinite, {-1e30f, 0.0f, 3.0f}, {}},
    {HyperRange::kNonNegative, {0.0f, 1e30f}, {-1e-30f, -3.0f}},
    {HyperRange::kPositive, {1e-30f, 2.0f}, {0.0f, -0.25f}},
    {HyperRange::kNonPositive, {0.0f, -2.0f}, {1e-30f, 0.5f}},
    {HyperRange::kUnit, {0.0f, 0.5f, 1.0f}, {-0.5f, 1.5f}},
    {HyperRange::kBelowOne, {0.0f, 0.99f}, {1.0f, -0.5f}},
};

const RangeCase& CaseOf(HyperRange range) {
  for (const RangeCase& c : kRanges) {
    if (c.range == range) return c;
  }
  return kRanges.front();
}

TEST(CheckHyper, RangesHaveTheirBounds) {
  for (const RangeCase& c : kRanges) {
    RuleInfo rule = {};
    rule.name = "rule";
    rule.hyper = {{"value", c.range}};
    for (const float good : c.good) EXPECT_TRUE(rule.CheckHyper(std::vector<float>{good}).ok()) << good;
    for (const float bad : c.bad) EXPECT_FALSE(rule.CheckHyper(std::vector<float>{bad}).ok()) << bad;
    for (const float bad : kNotFinite) {
      EXPECT_FALSE(rule.CheckHyper(std::vector<float>{bad}).ok()) << bad;
    }
  }
}

TEST(CheckHyper, MessageNamesRuleParameterRangeAndValue) {
  const Status status =
      MakeOptimizer("ftrl").value()->CheckHyper(std::vector<float>{0.1f, 0.5f, 0.1f, 0.0f, 0.0f, 0.0f, 0.0f});
  EXPECT_EQ(status.message(), "Optimizer 'ftrl': learning_rate_power must be finite and at most 0, got 0.5");
}

class HyperCheckTest : public testing::TestWithParam<RuleCase> {
 protected:
  // Expects that a step with these values is refused, with a message that has all `parts`, and changes
  // nothing.
  static void ExpectRefused(const std::vector<float>& bad, const std::vector<std::string>& parts) {
    InlineExecutor executor;
    TrainedRows rows(GetParam().name, 3, 4, GetParam().hyper);
    rows.Step(executor, GetParam().hyper, {0, 2}, std::vector<float>(8, 0.5f));
    ASSERT_TRUE(rows.status().ok()) << rows.status().message();
    const auto before = rows.Records();
    const std::vector<int64_t> touched = {1};
    const std::vector<float> grads(4, 1.0f);
    const Status status = rows.optimizer().Apply(
        executor, bad, touched, StoredRowGradients(grads.data(), rows.store().dim()), &rows.store());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(rows.optimizer().CheckHyper(bad).message(), status.message());
    EXPECT_NE(status.message().find("'" + GetParam().name + "'"), std::string::npos) << status.message();
    for (const std::string& part : parts) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
    EXPECT_EQ(rows.Records(), before);
    EXPECT_EQ(rows.optimizer().steps(), 1);
  }
};

TEST_P(HyperCheckTest, ValuesOutOfRangeAreRefusedAndChangeNothing) {
  const std::vector<HyperParameter>& hyper = GetParam().rule().hyper;
  for (size_t i = 0; i < hyper.size(); ++i) {
    std::vector<float> values = CaseOf(hyper[i].range).bad;
    values.insert(values.end(), std::begin(kNotFinite), std::end(kNotFinite));
    for (const float value : values) {
      std::vector<float> bad = GetParam().hyper;
      bad[i] = value;
      ExpectRefused(bad, {std::string(hyper[i].name) + " must be", Describe(hyper[i].range)});
    }
  }
}

TEST_P(HyperCheckTest, AnotherNumberOfValuesIsRefused) {
  std::vector<float> bad = GetParam().hyper;
  const std::string takes = "takes " + std::to_string(bad.size()) + " ";
  bad.push_back(0.5f);
  ExpectRefused(bad, {takes, GetParam().rule().hyper.back().name, "got " + std::to_string(bad.size())});
  ExpectRefused({}, {takes, "got 0"});
}

INSTANTIATE_TEST_SUITE_P(All, HyperCheckTest, testing::ValuesIn(OneCasePerRule()),
                         RuleCaseName<testing::TestParamInfo<RuleCase>>);

}  // namespace
}  // namespace sok
