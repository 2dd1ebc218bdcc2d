// Tables whose steps are the training program's global steps.
#include <algorithm>
#include <memory>
#include <vector>

#include "cc/table/table.h"
#include "cc/table/testing/test_table.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

std::unique_ptr<Table> MakeAgingTable(int64_t steps_to_live, bool admits = false) {
  TableOptions options = TestOptions(/*dim=*/2, /*capacity=*/0);
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = steps_to_live;
  if (admits) {
    options.admission.kind = Admission::Kind::kCounter;
    options.admission.filter_freq = 3;
  }
  return MakeTestTable(options);
}

// Looks up ids, inserting them, and takes a step of SGD with the rows that they have.
void Train(Table* table, const std::vector<int64_t>& ids) {
  InlineExecutor executor;
  std::vector<int64_t> rows = TrainingLookup(table, ids, std::vector<int64_t>(ids.size(), 1));
  rows.erase(std::remove(rows.begin(), rows.end(), Table::kAbsent), rows.end());
  const std::vector<float> grads(rows.size() * table->options().dim, 1.0f);
  const float rate = 0.5f;
  ASSERT_TRUE(table->ApplyGradients(executor, "sgd", {&rate, 1}, rows, grads.data(), true).ok());
}

int64_t EvictAt(Table* table, int64_t global_step) {
  InlineExecutor executor;
  int64_t evicted = 0;
  table->SetGlobalStep(global_step);
  EXPECT_TRUE(table->EvictForSave(executor, &evicted).ok());
  return evicted;
}

int64_t LastStep(const Table& table, int64_t id) { return table.last_step(FoundRows(table, {id})[0]); }

TEST(TableGlobalStepTest, AnUpdateBelongsToTheGlobalStepThatWasSet) {
  auto table = MakeAgingTable(10);
  table->SetGlobalStep(100);
  Train(table.get(), {1});
  EXPECT_EQ(LastStep(*table, 1), 100);
  EXPECT_EQ(table->steps(), 100);
  // Two updates may belong to the same step.
  table->SetGlobalStep(100);
  Train(table.get(), {2});
  EXPECT_EQ(LastStep(*table, 2), 100);
  EXPECT_EQ(EvictAt(table.get(), 110), 0);
  EXPECT_EQ(EvictAt(table.get(), 111), 2);
}

TEST(TableGlobalStepTest, RowsKeepTheirAgeWhenATableStopsCountingItsOwnSteps) {
  for (const int64_t global_step : {0, 1, 5, 1000}) {
    auto table = MakeAgingTable(3);
    Train(table.get(), {1});
    Train(table.get(), {2});
    Train(table.get(), {3});
    EXPECT_FALSE(table->counts_global_steps());
    table->SetGlobalStep(global_step);
    EXPECT_TRUE(table->counts_global_steps());
    EXPECT_EQ(table->steps(), global_step);
    EXPECT_EQ(LastStep(*table, 3), global_step);
    EXPECT_EQ(LastStep(*table, 1), std::max<int64_t>(global_step - 2, 0));
  }
}

TEST(TableGlobalStepTest, WaitingIdsKeepTheirAgeToo) {
  auto table = MakeAgingTable(3, /*admits=*/true);
  Train(table.get(), {7});
  Train(table.get(), {8});
  table->SetGlobalStep(50);
  ASSERT_EQ(table->waiting()->size(), 2);
  std::vector<int64_t> places(2);
  table->waiting()->Find(std::vector<int64_t>{7, 8}, Span<int64_t>(places));
  EXPECT_EQ(table->waiting()->last_step(places[0]), 48);
  EXPECT_EQ(table->waiting()->last_step(places[1]), 49);
  EvictAt(table.get(), 52);
  EXPECT_EQ(table->waiting()->size(), 1);
}

TEST(TableGlobalStepTest, AGlobalStepAheadOfTheCheckpointsDoesNotMoveLastSteps) {
  auto table = MakeAgingTable(3);
  table->SetClock(/*steps=*/200, /*uses=*/5, /*of_graph=*/true);
  const std::vector<int64_t> rows = RowsOf(table.get(), {1});
  table->set_last_step(rows[0], 190);
  // The program's step is ahead of the checkpoint's, so the row has become older.
  table->chain_end().folder = "full";
  table->SetGlobalStep(205);
  EXPECT_EQ(LastStep(*table, 1), 190);
  EXPECT_EQ(table->chain_end().folder, "full");
}

TEST(TableGlobalStepTest, AGlobalStepBehindTheCheckpointsMovesLastStepsBackAndEndsTheChain) {
  auto table = MakeAgingTable(30);
  table->SetClock(/*steps=*/200, /*uses=*/5, /*of_graph=*/true);
  table->set_last_step(RowsOf(table.get(), {1})[0], 190);
  table->chain_end().folder = "full";
  table->SetGlobalStep(20);
  EXPECT_EQ(table->steps(), 20);
  EXPECT_EQ(LastStep(*table, 1), 10);
  EXPECT_EQ(table->chain_end().folder, "");
  // Sessions that run at the same time may set their steps in any order.
  table->SetGlobalStep(22);
  table->SetGlobalStep(21);
  EXPECT_EQ(table->steps(), 22);
  EXPECT_EQ(LastStep(*table, 1), 10);
}

}  // namespace
}  // namespace sok
