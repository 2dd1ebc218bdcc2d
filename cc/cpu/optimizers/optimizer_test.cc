#include "cc/cpu/optimizers/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/optimizers/testing/trained_rows.h"
#include "cc/optimizers/rule_info.h"
#include "cc/optimizers/testing/rule_cases.h"

namespace sok {
namespace {

TEST(KnownRules, AreCompleteWithDistinctNames) {
  std::set<std::string> names;
  for (const RuleInfo* rule : KnownRules()) {
    EXPECT_TRUE(names.insert(rule->name).second) << rule->name;
    EXPECT_FALSE(rule->source.empty()) << rule->name;
    EXPECT_FALSE(rule->hyper.empty()) << rule->name;
    EXPECT_FALSE(rule->samples.empty()) << rule->name;
    std::set<std::string> slots;
    for (const RuleSlot& slot : rule->slots) EXPECT_TRUE(slots.insert(slot.name).second) << rule->name;
  }
  EXPECT_GE(names.size(), 18u);
}

TEST(KnownRules, SlotsAreFilledWithZerosOrAHyperParameter) {
  for (const RuleInfo* rule : KnownRules()) {
    for (const RuleSlot& slot : rule->slots) {
      if (slot.fill == nullptr) continue;
      bool found = false;
      for (const HyperParameter& hyper : rule->hyper) found |= std::string(hyper.name) == slot.fill;
      EXPECT_TRUE(found) << rule->name << " fills " << slot.name << " with " << slot.fill;
    }
  }
}

TEST(KnownRules, SlotsOfOneNumberComeLast) {
  for (const RuleInfo* rule : KnownRules()) {
    for (size_t k = 1; k < rule->slots.size(); ++k) {
      EXPECT_LE(rule->slots[k - 1].one_per_row, rule->slots[k].one_per_row) << rule->name;
    }
  }
}

TEST(MakeOptimizer, MakesEveryRule) {
  for (const RuleInfo* rule : KnownRules()) {
    auto optimizer = MakeOptimizer(rule->name);
    ASSERT_TRUE(optimizer.ok()) << rule->name;
    EXPECT_EQ(&optimizer.value()->rule(), rule);
    EXPECT_EQ(optimizer.value()->name(), rule->name);
    EXPECT_EQ(optimizer.value()->has_catch_up(), rule->untouched != UntouchedRows::kStay) << rule->name;
    EXPECT_EQ(optimizer.value()->Slots(8, rule->samples[0]).size(), optimizer.value()->slot_names().size());
  }
}

TEST(MakeOptimizer, UnknownNameIsRefusedWithTheKnownOnes) {
  for (const char* name : {"", "Adam", "no_such_rule", "Nadam", "sgd "}) {
    auto optimizer = MakeOptimizer(name);
    ASSERT_FALSE(optimizer.ok());
    EXPECT_EQ(optimizer.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(optimizer.status().message().find(std::string("'") + name + "'"), std::string::npos);
    for (const RuleInfo* rule : KnownRules()) {
      EXPECT_NE(optimizer.status().message().find(rule->name), std::string::npos) << rule->name;
    }
  }
}

TEST(Slots, WidthsAndFills) {
  const auto adagrad = MakeOptimizer("adagrad").value()->Slots(7, std::vector<float>{0.1f, 0.25f, 0.0f});
  ASSERT_EQ(adagrad.size(), 1u);
  EXPECT_EQ(adagrad[0].width, 7);
  EXPECT_EQ(adagrad[0].fill, 0.25f);
  const auto rowwise =
      MakeOptimizer("rowwise_adagrad").value()->Slots(7, std::vector<float>{0.1f, 0.25f, 0.0f});
  ASSERT_EQ(rowwise.size(), 1u);
  EXPECT_EQ(rowwise[0].width, 1);
  EXPECT_EQ(rowwise[0].fill, 0.25f);
  const auto rmsprop =
      MakeOptimizer("rmsprop").value()->Slots(3, std::vector<float>{0.1f, 0.9f, 0.0f, 1e-7f, 1.0f});
  ASSERT_EQ(rmsprop.size(), 2u);
  EXPECT_EQ(rmsprop[0].fill, 1.0f);
  EXPECT_EQ(rmsprop[1].fill, 0.0f);
}

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
