// A group's lookup in two calls, with steps and evictions in between, equals a lookup in one call.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/group/testing/random_group.h"

namespace sok {
namespace {

// Ids of one table in bags of two, summed.
Group GroupOf(const std::vector<int64_t>& ids, const TableOptions& options) {
  Group group;
  group.AddTable(options.dim);
  InlineExecutor executor;
  group.tables[0] = std::move(Table::Create(executor, options).value());
  std::vector<ReferenceBag> bags;
  for (size_t i = 0; i + 1 < ids.size(); i += 2) bags.push_back({{ids[i], ids[i + 1]}, {1, 1}});
  group.AddLookup(0, bags, Combiner::kSum, false);
  return group;
}

TableOptions SmallTable() {
  TableOptions options;
  options.name = "table";
  options.dim = 3;
  options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f, 3};
  return options;
}

void TakeStep(Table* table, const std::string& optimizer, std::vector<float> hyper,
              const std::vector<int64_t>& keys, float gradient) {
  InlineExecutor executor;
  std::vector<int64_t> rows(keys.size());
  std::vector<int64_t> counts(keys.size(), 1);
  std::vector<int64_t> read_default;
  ASSERT_TRUE(table->FindForTraining(executor, keys, counts, Span<int64_t>(rows), &read_default).ok());
  table->MakeReferences(Span<int64_t>(rows));
  const std::vector<float> gradients(keys.size() * table->options().dim, gradient);
  const Status status = table->ApplyGradients({executor}, optimizer, hyper, rows, gradients.data(), true);
  ASSERT_TRUE(status.ok()) << status.message();
}

void ExpectSame(const Group& one, const Group& other) {
  EXPECT_EQ(one.outputs, other.outputs);
  for (size_t t = 0; t < one.tables.size(); ++t) {
    // A read-only lookup in one call may leave the distinct ids empty.
    if (one.plan.training) {
      EXPECT_EQ(one.plan.parts[t].unique, other.plan.parts[t].unique);
      EXPECT_EQ(one.plan.parts[t].inverse, other.plan.parts[t].inverse);
      EXPECT_EQ(one.plan.parts[t].rows, other.plan.parts[t].rows);
    }
    EXPECT_EQ(one.plan.parts[t].trained, other.plan.parts[t].trained);
    EXPECT_EQ(one.tables[t]->Keys(), other.tables[t]->Keys());
    EXPECT_EQ(one.tables[t]->uses(), other.tables[t]->uses());
  }
}

TEST(MergedGroupTest, TwoCallsEqualOneCall) {
  for (const int batch : {0, 1, 7, 300}) {
    for (const int threads : {1, 2, 3}) {
      for (const bool training : {true, false}) {
        ThreadPool executor(threads);
        Group whole = RandomGroup(batch, batch);
        Group halves = RandomGroup(batch, batch);
        whole.plan.training = halves.plan.training = training;
        ASSERT_TRUE(whole.Forward(executor).ok());
        GroupScratch scratch;
        ASSERT_TRUE(halves.Merge(executor, &scratch).ok());
        for (const auto& table : halves.tables) EXPECT_EQ(table->size(), 0) << "nothing is inserted ahead";
        ASSERT_TRUE(halves.Read(executor, &scratch).ok());
        ExpectSame(whole, halves);
      }
    }
  }
}

// A change of the table between the two calls.
using Event = void (*)(Table*);

void ExpectSameAfter(const TableOptions& options, Event before, Event between) {
  InlineExecutor executor;
  Group whole = GroupOf({1, 2, 2, 3, 9, 1}, options);
  Group halves = GroupOf({1, 2, 2, 3, 9, 1}, options);
  before(whole.tables[0].get());
  between(whole.tables[0].get());
  ASSERT_TRUE(whole.Forward(executor).ok());
  GroupScratch scratch;
  before(halves.tables[0].get());
  ASSERT_TRUE(halves.Merge(executor, &scratch).ok());
  between(halves.tables[0].get());
  ASSERT_TRUE(halves.Read(executor, &scratch).ok());
  ExpectSame(whole, halves);
}

TEST(MergedGroupTest, TheReadSeesAStepInBetween) {
  const Event step = [](Table* table) { TakeStep(table, "sgd", {0.5f}, {2, 3, 4}, 0.25f); };
  ExpectSameAfter(SmallTable(), step, step);
}

TEST(MergedGroupTest, TheReadBringsRowsUpToDate) {
  const Event with_two = [](Table* table) {
    TakeStep(table, "adam", {0.1f, 0.9f, 0.999f, 1e-7f}, {2}, 0.25f);
  };
  const Event without = [](Table* table) {
    TakeStep(table, "adam", {0.1f, 0.9f, 0.999f, 1e-7f}, {4}, 0.25f);
  };
  ExpectSameAfter(SmallTable(), with_two, without);
}

TEST(MergedGroupTest, RowsEvictedInBetweenAreInsertedAgain) {
  for (const OnFull on_full : {OnFull::kEvictLru, OnFull::kEvictLfu}) {
    TableOptions options = SmallTable();
    options.capacity = 4;
    options.on_full = on_full;
    const Event all_of_it = [](Table* table) { TakeStep(table, "sgd", {0.5f}, {1, 2, 3, 9}, 0.25f); };
    const Event others = [](Table* table) { TakeStep(table, "sgd", {0.5f}, {20, 21, 22}, 0.25f); };
    ExpectSameAfter(options, all_of_it, others);
  }
}

TEST(MergedGroupTest, IdsAdmittedInBetweenHaveRows) {
  TableOptions options = SmallTable();
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 3;
  options.admission.default_value = 0.5f;
  const Event count = [](Table* table) { TakeStep(table, "sgd", {0.5f}, {}, 0.0f); };
  const Event see_three = [](Table* table) {
    InlineExecutor executor;
    const std::vector<int64_t> keys = {3};
    const std::vector<int64_t> counts = {2};
    std::vector<int64_t> rows(1);
    std::vector<int64_t> read_default;
    ASSERT_TRUE(table->FindForTraining(executor, keys, counts, Span<int64_t>(rows), &read_default).ok());
  };
  ExpectSameAfter(options, count, see_three);
}

TEST(MergedGroupTest, ALookupThatDoesNotFitIsAnErrorOfTheRead) {
  TableOptions options = SmallTable();
  options.capacity = 3;
  Group group = GroupOf({1, 2, 3, 4}, options);
  InlineExecutor executor;
  GroupScratch scratch;
  ASSERT_TRUE(group.Merge(executor, &scratch).ok());
  const Status status = group.Read(executor, &scratch);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_NE(status.message().find("'table'"), std::string::npos) << status.message();
  EXPECT_EQ(group.tables[0]->size(), 0);
}

}  // namespace
}  // namespace sok
