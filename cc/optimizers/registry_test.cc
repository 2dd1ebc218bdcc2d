#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cc/optimizers/optimizer.h"
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

}  // namespace
}  // namespace sok
