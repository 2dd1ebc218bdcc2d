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

// Gradients whose squares overflow float, and infinite moments: the result must have the same numbers, inf
// and NaN as TensorFlow's operations, step by step.

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<float> kSpikes = {1.0f,  1e18f,  1e19f, 1e20f, 1e21f, 1e30f,
                                    3e38f, -3e38f, kInf,  -kInf, kNan};

struct Betas {
  float beta1;
  float beta2;
};

// Series of four and of eight terms, and steps taken one by one, with powers that vanish soon and later.
constexpr Betas kBetas[] = {{0.9f, 0.999f}, {0.9f, 0.98f}, {0.9f, 0.9f}, {0.5f, 0.25f}, {0.0f, 0.999f}};
// 0.9^gap is below the normal floats from a gap of about 830 on.
constexpr int64_t kGaps[] = {1, 10, 200, 900, 2500};

void ExpectSame(float actual, float expected, double tolerance) {
  if (std::isfinite(expected)) {
    EXPECT_NEAR(actual, expected, tolerance * (1e-3 + std::fabs(expected)));
  } else if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << actual;
  } else {
    EXPECT_EQ(actual, expected);
  }
}

// A row trained with exact Adam, and the same row with dense Adam.
class Twins {
 public:
  Twins(Betas betas, float epsilon, int64_t dim)
      : dim_(dim),
        hyper_({0.01f, betas.beta1, betas.beta2, epsilon}),
        rows_("adam", 1, dim, hyper_),
        dense_(1, dim) {
    for (int64_t c = 0; c < dim; ++c) rows_.store().weights(0)[c] = dense_.w[static_cast<size_t>(c)] = 0.5f;
  }

  // A step with these gradients; without a gradient if `grads` is empty.
  void Step(const std::vector<float>& grads) {
    const std::vector<int64_t> touched = grads.empty() ? std::vector<int64_t>() : std::vector<int64_t>{0};
    rows_.Step(executor_, hyper_, touched, grads);
    dense_.Step(hyper_[0], hyper_[1], hyper_[2], hyper_[3], touched, grads);
  }

  void SetMoments(int64_t c, float m, float v) {
    const size_t i = static_cast<size_t>(c);
    rows_.store().slot(0, 0)[c] = dense_.m[i] = m;
    rows_.store().slot(0, 1)[c] = dense_.v[i] = v;
  }

  void CatchUp() { rows_.CatchUp(executor_, {0}); }

  void ExpectEqual() {
    CatchUp();
    ASSERT_TRUE(rows_.status().ok()) << rows_.status().message();
    for (int64_t c = 0; c < dim_; ++c) {
      SCOPED_TRACE(testing::Message()
                   << "element " << c << ", beta1 " << hyper_[1] << ", beta2 " << hyper_[2]);
      const size_t i = static_cast<size_t>(c);
      ExpectSame(rows_.store().weights(0)[c], dense_.w[i], 1e-4);
      ExpectSame(rows_.store().slot(0, 0)[c], dense_.m[i], 1e-3);
      ExpectSame(rows_.store().slot(0, 1)[c], dense_.v[i], 1e-3);
    }
  }

 private:
  int64_t dim_;
  std::vector<float> hyper_;
  InlineExecutor executor_;
  TrainedRows rows_;
  DenseAdam<float> dense_;
};

TEST(Overflow, ExactAdamAfterASpike) {
  const int64_t dim = static_cast<int64_t>(kSpikes.size());
  const std::vector<float> ones(kSpikes.size(), 1.0f);
  for (const Betas betas : kBetas) {
    for (const int64_t gap : kGaps) {
      SCOPED_TRACE(gap);
      Twins twins(betas, 1e-8f, dim);
      twins.Step(ones);
      twins.Step(kSpikes);
      for (int64_t t = 0; t < gap; ++t) twins.Step({});
      twins.Step(ones);
      twins.Step(ones);
      twins.ExpectEqual();
    }
  }
}

TEST(Overflow, ExactAdamContinuesFromInfiniteAndNanMoments) {
  const std::vector<std::vector<float>> moments = {{kInf, 1.0f},  {-kInf, 1.0f}, {1.0f, kInf}, {0.0f, kInf},
                                                   {kInf, kInf},  {kNan, 1.0f},  {1.0f, kNan}, {0.0f, kNan},
                                                   {1e30f, kInf}, {1.0f, 1.0f},  {0.0f, 0.0f}};
  const int64_t dim = static_cast<int64_t>(moments.size());
  for (const Betas betas : kBetas) {
    for (const int64_t gap : kGaps) {
      SCOPED_TRACE(gap);
      Twins twins(betas, 1e-8f, dim);
      twins.Step({});
      twins.CatchUp();
      for (int64_t c = 0; c < dim; ++c) twins.SetMoments(c, moments[c][0], moments[c][1]);
      for (int64_t t = 0; t < gap; ++t) twins.Step({});
      twins.ExpectEqual();
      twins.Step(std::vector<float>(moments.size(), 0.5f));
      twins.ExpectEqual();
    }
  }
}

TEST(Overflow, ExactAdamWithEpsilonZero) {
  // An element with two gradients, one with one gradient, and one without any.
  for (const Betas betas : kBetas) {
    for (const int64_t gap : {1, 10, 50}) {
      SCOPED_TRACE(gap);
      Twins twins(betas, 0.0f, 3);
      twins.Step({1.0f, 0.5f, 0.0f});
      twins.Step({0.3f, 0.0f, 0.0f});
      for (int64_t t = 0; t < gap; ++t) twins.Step({});
      twins.ExpectEqual();
    }
  }
}

// The element whose second moment overflows does not move, and the others do.
TEST(Overflow, SlotsThatDecayKeepInfThroughAnyGap) {
  InlineExecutor executor;
  for (const RuleCase& c : OneCasePerRule()) {
    if (c.rule().untouched != UntouchedRows::kSlotsDecay) continue;
    const size_t second_moment = c.name == "nadam" ? 4 : 2;  // in a record of two weights and the slots
    for (const int64_t gap : {0, 1, 10, 200, 900, 3000}) {
      for (const bool read_before : {false, true}) {
        TrainedRows rows(c.name, 1, 2, c.hyper);
        rows.Step(executor, c.hyper, {0}, {1e20f, 1.0f});
        const std::vector<float> before = rows.Record(0);
        for (int64_t t = 0; t < gap; ++t) rows.Step(executor, c.hyper, {}, {});
        if (read_before) rows.CatchUp(executor, {0});
        rows.Step(executor, c.hyper, {0}, {1.0f, 1.0f});
        const std::vector<float> after = rows.Record(0);
        EXPECT_EQ(after[0], before[0]) << c.name << " " << gap;
        EXPECT_EQ(after[second_moment], kInf) << c.name << " " << gap;
        EXPECT_NE(after[1], before[1]) << c.name << " " << gap;
        EXPECT_TRUE(std::isfinite(after[1]) && std::isfinite(after[second_moment + 1]))
            << c.name << " " << gap;
      }
    }
  }
}

TEST(Overflow, FtrlGivesNanInsteadOfZero) {
  InlineExecutor executor;
  for (const float power : {-0.5f, -0.7f}) {
    for (const float l1 : {0.0f, 0.1f}) {
      const std::vector<float> hyper = {0.1f, power, 0.1f, l1, 0.0f, 0.0f, 0.0f};
      TrainedRows rows("ftrl", 1, 3, hyper);
      rows.Step(executor, hyper, {0}, {1e30f, kNan, 1.0f});
      rows.Step(executor, hyper, {0}, {1.0f, 1.0f, 1.0f});
      EXPECT_TRUE(std::isnan(rows.Record(0)[0]));
      EXPECT_TRUE(std::isnan(rows.Record(0)[1]));
      EXPECT_TRUE(std::isfinite(rows.Record(0)[2]));
    }
  }
}

// The linear slot of a checkpoint may be inf, and so the weight. Without shrinkage the weight must not become
// NaN.
TEST(Overflow, FtrlWithoutShrinkageKeepsInf) {
  InlineExecutor executor;
  const std::vector<float> hyper = {0.1f, -0.5f, 0.1f, 0.1f, 0.0f, 0.0f, 0.0f};
  TrainedRows rows("ftrl", 1, 1, hyper);
  rows.store().slot(0, 1)[0] = kInf;
  for (int t = 0; t < 3; ++t) {
    rows.Step(executor, hyper, {0}, {1.0f});
    EXPECT_EQ(rows.Record(0)[0], -kInf);
    EXPECT_EQ(rows.Record(0)[2], kInf);
  }
}

// learning_rate * g overflows, but TensorFlow divides by the root first.
TEST(Overflow, RmspropDividesBeforeItMultiplies) {
  InlineExecutor executor;
  const std::vector<float> hyper = {30.0f, 0.9f, 0.5f, 1e-10f, 1.0f};
  TrainedRows rows("rmsprop", 1, 1, hyper);
  const float before = rows.Record(0)[0];
  rows.Step(executor, hyper, {0}, {1e38f});
  EXPECT_EQ(rows.Record(0)[0], before);
}

}  // namespace
}  // namespace sok
