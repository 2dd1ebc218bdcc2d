// Erased keys: their rows, late gradients, and the changes that a checkpoint saves.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cc/cpu/table/table.h"
#include "cc/cpu/table/testing/test_table.h"
#include "cc/table/table_errors.h"
#include "gtest/gtest.h"

namespace sok {
namespace {

int64_t Erase(Table* table, const std::vector<int64_t>& keys) {
  InlineExecutor executor;
  int64_t erased = -1;
  const Status status = table->Erase({executor}, keys, &erased);
  EXPECT_TRUE(status.ok()) << status.message();
  return erased;
}

TEST(TableEraseTest, AbsentKeysAreSkipped) {
  auto table = MakeTestTable(TestOptions(2));
  RowsOf(table.get(), {1, INT64_MIN, -1, 4});
  EXPECT_EQ(Erase(table.get(), {-1, 99, INT64_MIN, -1}), 2);
  EXPECT_EQ(Erase(table.get(), {}), 0);
  EXPECT_EQ(table->size(), 2);
  EXPECT_EQ(table->row_limit(), 4);
  EXPECT_EQ(table->Keys(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(table->Rows(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(FoundRows(*table, {1, -1}), (std::vector<int64_t>{0, Table::kAbsent}));
}

TEST(TableEraseTest, ErasedRowsMakeRoomInABoundedTable) {
  auto table = MakeTestTable(TestOptions(1, 3));
  RowsOf(table.get(), {1, 2, 3});
  Erase(table.get(), {2});
  EXPECT_EQ(RowsOf(table.get(), {7}), (std::vector<int64_t>{1}));
}

struct Case {
  std::string optimizer;
  std::vector<float> hyper;
};

class ReusedRowTest : public testing::TestWithParam<Case> {
 protected:
  void Step(Table* table, const std::vector<int64_t>& references, const std::vector<float>& grads,
            bool distinct = true) {
    const Status status = table->ApplyGradients({executor_}, GetParam().optimizer, GetParam().hyper,
                                                references, grads.data(), distinct);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  InlineExecutor executor_;
};

// A row that belonged to another key trains like a row that was never used.
TEST_P(ReusedRowTest, AReusedRowTrainsLikeANewRow) {
  auto reused = MakeTestTable(TestOptions(2));
  auto fresh = MakeTestTable(TestOptions(2));
  for (Table* table : {reused.get(), fresh.get()}) RowsOf(table, {1, 2});
  for (int i = 0; i < 5; ++i) {
    for (Table* table : {reused.get(), fresh.get()}) Step(table, {0, 1}, {1, 2, 3, 4});
  }
  Erase(reused.get(), {2});
  for (Table* table : {reused.get(), fresh.get()}) Step(table, {0}, {1, 2});
  const std::vector<int64_t> in_reused = TrainingLookup(reused.get(), {30}, {1});
  const std::vector<int64_t> in_fresh = TrainingLookup(fresh.get(), {30}, {1});
  EXPECT_EQ(RowOf(in_reused[0]), 1);
  EXPECT_EQ(WeightsOf(*reused, 1), InitialWeights(*reused, 30));
  for (int i = 0; i < 3; ++i) {
    Step(reused.get(), {in_reused[0]}, {-1, 1});
    Step(fresh.get(), {in_fresh[0]}, {-1, 1});
    Step(reused.get(), {0}, {1, 2});
    Step(fresh.get(), {0}, {1, 2});
  }
  ASSERT_TRUE(reused->BringUpToDate(executor_, reused->Rows()).ok());
  ASSERT_TRUE(fresh->BringUpToDate(executor_, fresh->Rows()).ok());
  const int64_t floats = 2 + fresh->slot_width();
  for (const auto& [a, b] : {std::pair<int64_t, int64_t>{0, 0}, {1, 2}}) {
    EXPECT_EQ(std::vector<float>(reused->weights(a), reused->weights(a) + floats),
              std::vector<float>(fresh->weights(b), fresh->weights(b) + floats));
  }
}

TEST_P(ReusedRowTest, AGradientThatComesTooLateIsDropped) {
  auto table = MakeTestTable(TestOptions(2));
  const std::vector<int64_t> before = TrainingLookup(table.get(), {1, 2, 3}, {1, 1, 1});
  Step(table.get(), before, {1, 1, 1, 1, 1, 1});
  Erase(table.get(), {2});
  const std::vector<int64_t> now = TrainingLookup(table.get(), {9, 3}, {1, 1});
  EXPECT_EQ(RowOf(now[0]), 1);
  auto expected = MakeTestTable(TestOptions(2));
  RowsOf(expected.get(), {1, 2, 3});
  Step(expected.get(), {0, 1, 2}, {1, 1, 1, 1, 1, 1});
  Step(expected.get(), {0, 2}, {5, 6, 9, 10});
  // The gradient of key 2 is dropped; it does not change key 9, which has its row.
  Step(table.get(), before, {5, 6, 7, 8, 9, 10});
  EXPECT_EQ(WeightsOf(*table, 1), InitialWeights(*table, 9));
  EXPECT_EQ(WeightsOf(*table, 0), WeightsOf(*expected, 0));
  EXPECT_EQ(WeightsOf(*table, 2), WeightsOf(*expected, 2));
  // The same with repeated rows, and with late gradients only.
  Step(table.get(), {before[0], before[1], before[0]}, {1, 2, 7, 7, 3, 4}, false);
  Step(expected.get(), {0}, {4, 6});
  EXPECT_EQ(WeightsOf(*table, 0), WeightsOf(*expected, 0));
  Step(table.get(), {before[1]}, {7, 7});
  EXPECT_EQ(table->steps(), 4);
  ASSERT_TRUE(table->BringUpToDate(executor_, table->Rows()).ok());
  EXPECT_EQ(WeightsOf(*table, 1), InitialWeights(*table, 9));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ReusedRowTest,
                         testing::Values(Case{"sgd", {0.1f}}, Case{"adagrad", {0.1f, 0.1f, 0.0f}},
                                         Case{"adagrad_decay", {0.1f, 0.1f, 0.5f, 2.0f}},
                                         Case{"lazy_adam", {0.01f, 0.9f, 0.999f, 1e-8f}},
                                         Case{"adam", {0.01f, 0.9f, 0.999f, 1e-8f}},
                                         Case{"keras_rmsprop", {0.01f, 0.9f, 1e-7f}},
                                         Case{"nadam", {0.01f, 0.9f, 0.999f, 1e-7f, 0.7f, 0.6f, 0.01f}}),
                         [](const auto& info) { return info.param.optimizer; });

TEST(TableEraseTest, ReferencesToRowsThatTheTableNeverHadAreRefused) {
  auto table = MakeTestTable(TestOptions(1));
  RowsOf(table.get(), {1, 2});
  InlineExecutor executor;
  const float grad = 1.0f;
  const std::vector<float> hyper = {0.5f};
  const auto apply = [&](int64_t reference) {
    return table->ApplyGradients({executor}, "sgd", hyper, {&reference, 1}, &grad, true).code();
  };
  const int64_t generation = int64_t{1} << kRowNumberBits;
  for (const int64_t bad : {int64_t{2}, int64_t{-1}, INT64_MIN, INT64_MAX, generation}) {
    EXPECT_EQ(apply(bad), StatusCode::kInvalidArgument) << bad;
  }
  Erase(table.get(), {2});
  for (const int64_t bad : {int64_t{2}, int64_t{-1}, INT64_MIN, INT64_MAX, generation + 2}) {
    EXPECT_EQ(apply(bad), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(apply(generation), StatusCode::kOk) << "dropped: row 0 was never freed";
  EXPECT_EQ(WeightsOf(*table, 0), InitialWeights(*table, 1));
}

TEST(TableEvictForSaveTest, ErasesRowsWithSmallNorms) {
  TableOptions options = TestOptions(3);
  options.eviction.kind = Eviction::Kind::kL2Weight;
  options.eviction.l2_weight_threshold = 0.5f;
  for (const int threads : {1, 3}) {
    auto table = MakeTestTable(options);
    InlineExecutor executor;
    std::vector<int64_t> keys;
    std::vector<float> values;
    std::vector<int64_t> expected;
    for (int64_t key = 0; key < 500; ++key) {
      keys.push_back(key * threads);
      const float w = static_cast<float>(key % 8) / 4 - 1.0f;
      for (const float value : {w, 0.0f, w}) values.push_back(value);
      if (!(w * w < 0.5f)) expected.push_back(key * threads);
    }
    ASSERT_TRUE(table->Assign({executor}, keys, values.data()).ok());
    int64_t evicted;
    ASSERT_TRUE(table->EvictForSave(executor, &evicted).ok());
    EXPECT_EQ(table->Keys(), expected);
    EXPECT_EQ(evicted, static_cast<int64_t>(keys.size() - expected.size()));
  }
}

TEST(TableChangesTest, ReportsTheRowsAndErasedKeysOfADelta) {
  auto table = MakeTestTable(TestOptions(1));
  InlineExecutor executor;
  RowsOf(table.get(), {10, 11, 12, 13});
  ASSERT_TRUE(table->TrackChanges().ok());
  const auto changed = [&] {
    std::vector<int64_t> keys;
    for (const int64_t row : table->Rows()) {
      if (table->changed(row)) keys.push_back(table->key(row));
    }
    return keys;
  };
  EXPECT_TRUE(changed().empty());
  const float grad = 1.0f;
  const std::vector<float> hyper = {0.1f};
  const std::vector<int64_t> row = {2};
  ASSERT_TRUE(table->ApplyGradients({executor}, "sgd", hyper, row, &grad, true).ok());
  RowsOf(table.get(), {14, 10});
  const std::vector<int64_t> assigned = {11};
  ASSERT_TRUE(table->Assign({executor}, assigned, &grad).ok());
  EXPECT_EQ(changed(), (std::vector<int64_t>{11, 12, 14}));
  Erase(table.get(), {12, 13});
  EXPECT_EQ(table->erased_keys(), (std::vector<int64_t>{12, 13}));
  EXPECT_EQ(changed(), (std::vector<int64_t>{11, 14}));
  table->BeginSave();
  RowsOf(table.get(), {12});
  table->EndSave(true);
  EXPECT_EQ(changed(), (std::vector<int64_t>{12}));
  EXPECT_TRUE(table->erased_keys().empty());
}

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
  ASSERT_TRUE(table->ApplyGradients({executor}, "sgd", {&rate, 1}, rows, grads.data(), true).ok());
}

int64_t EvictAt(Table* table, int64_t global_step) {
  InlineExecutor executor;
  int64_t evicted = 0;
  EXPECT_TRUE(table->SetGlobalStep(global_step).ok());
  EXPECT_TRUE(table->EvictForSave(executor, &evicted).ok());
  return evicted;
}

int64_t LastStep(const Table& table, int64_t id) { return table.last_step(FoundRows(table, {id})[0]); }

TEST(TableGlobalStepTest, RowsKeepTheirAgeWhenATableStopsCountingItsOwnSteps) {
  for (const int64_t global_step : {0, 1, 5, 1000}) {
    auto table = MakeAgingTable(3);
    Train(table.get(), {1});
    Train(table.get(), {2});
    Train(table.get(), {3});
    EXPECT_FALSE(table->counts_global_steps());
    EXPECT_TRUE(table->SetGlobalStep(global_step).ok());
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
  EXPECT_TRUE(table->SetGlobalStep(50).ok());
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
  table->chain_end().prefix = "full";
  EXPECT_TRUE(table->SetGlobalStep(205).ok());
  EXPECT_EQ(LastStep(*table, 1), 190);
  EXPECT_EQ(table->chain_end().prefix, "full");
}

TEST(TableGlobalStepTest, AGlobalStepBehindTheCheckpointsMovesLastStepsBackAndEndsTheChain) {
  auto table = MakeAgingTable(30);
  table->SetClock(/*steps=*/200, /*uses=*/5, /*of_graph=*/true);
  table->set_last_step(RowsOf(table.get(), {1})[0], 190);
  table->chain_end().prefix = "full";
  EXPECT_TRUE(table->SetGlobalStep(20).ok());
  EXPECT_EQ(table->steps(), 20);
  EXPECT_EQ(LastStep(*table, 1), 10);
  EXPECT_EQ(table->chain_end().prefix, "");
  // Sessions that run at the same time may set their steps in any order.
  EXPECT_TRUE(table->SetGlobalStep(22).ok());
  EXPECT_TRUE(table->SetGlobalStep(21).ok());
  EXPECT_EQ(table->steps(), 22);
  EXPECT_EQ(LastStep(*table, 1), 10);
  // Rows of a push that saw the older step are not older than the table.
  Train(table.get(), {1});
  EXPECT_EQ(LastStep(*table, 1), 22);
}

TEST(TableErrorsTest, AnErrorNamesItsVariableOnce) {
  TableOptions table;
  table.name = "items";
  EXPECT_TRUE(NamedError(table, OkStatus()).ok());
  const Status once = NamedError(table, Internal("cannot launch a kernel"));
  EXPECT_EQ(once.code(), StatusCode::kInternal);
  EXPECT_EQ(once.message(), "Embedding variable 'items': cannot launch a kernel");
  EXPECT_EQ(NamedError(table, once).message(), once.message());
  EXPECT_EQ(NamedError(table, once).code(), StatusCode::kInternal);
  const Status full = TableIsFull(table, 3, 1);
  EXPECT_EQ(NamedError(table, full).message(), full.message());
}

TEST(TableErrorsTest, AnotherVariablesNameDoesNotStandForItsOwn) {
  TableOptions table;
  table.name = "item";
  TableOptions other;
  other.name = "items";
  EXPECT_EQ(NamedError(table, NamedError(other, Internal("no"))).message(),
            "Embedding variable 'item': Embedding variable 'items': no");
  EXPECT_EQ(NamedError(table, Internal("no optimizer 'item'")).message(),
            "Embedding variable 'item': no optimizer 'item'");
}

}  // namespace

}  // namespace sok
