// Backward passes and optimizer steps, separate and fused, against references row by row.
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/lookup_reference.h"
#include "cc/engine/contract/suites.h"
#include "cc/engine/contract/training_reference.h"
#include "cc/optimizers/rule_info.h"

namespace sok {
namespace {

SOK_CONTRACT_SUITE(GradientContract);
SOK_CONTRACT_SUITE(WeightsContract);
SOK_CONTRACT_SUITE(TrainingContract);
SOK_CONTRACT_SUITE(FusedContract);
SOK_CONTRACT_SUITE(RecordTypesContract);

const std::vector<int64_t> kDims = {16, 3, 1, 65};

std::vector<TableOptions> ManyTables() {
  std::vector<TableOptions> options;
  for (size_t t = 0; t < kDims.size(); ++t) {
    options.push_back(ContractOptions("table" + std::to_string(t), kDims[t]));
  }
  return options;
}

// Numbers of bags: none, one, and enough that the ids of all lookups take several blocks of 256 threads.
// Only fast engines get batches in which the ids of every lookup do.
std::vector<int64_t> NumbersOfBags(const EngineCase& engine) {
  if (engine.is_slow) return {0, 1, 40};
  return {0, 1, 40, 300};
}

TEST_P(GradientContract, SumsEqualTheReferenceWithTheSameBitsOnAnyNumberOfThreads) {
  for (const int64_t bags : NumbersOfBags(GetParam())) {
    const ContractBatch batch = RandomBatch(static_cast<uint32_t>(bags) + 7, bags, kDims);
    std::vector<ValuesByKey> first;
    for (const int threads : GetParam().threads) {
      ThreadPool executor(threads, /*min_block_ns=*/0);
      ContractGroup group(GetParam(), executor, ManyTables());
      TrainingReference reference(ManyTables());
      const OutputValues gradients = group.RandomGradients(batch, 9);
      ASSERT_TRUE(group.Lookup(batch).ok());
      std::vector<ValuesByKey> sums;
      ASSERT_TRUE(group.Backward(gradients, &sums).ok());
      if (first.empty()) first = sums;
      EXPECT_EQ(sums, first) << threads << " threads";
      // A step of SGD with a learning rate of 1 subtracts the sum of each key from its row.
      ASSERT_TRUE(group.BackwardAndApply(gradients, "sgd", {1.0f}).ok());
      reference.Step(batch, gradients, "sgd", {1.0f});
      reference.ExpectRows(group, 2e-5);
    }
  }
}

TEST_P(GradientContract, AHotIdGetsTheSumOfAllItsOccurrences) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("table", 2)});
  // Sums are made in pieces of 256 occurrences: on a slow engine, two whole pieces and a part.
  const size_t occurrences = GetParam().is_slow ? 600 : 20000;
  std::vector<std::vector<int64_t>> bags(1, std::vector<int64_t>(occurrences, 7));
  bags.resize(3, {7, 8});
  ASSERT_TRUE(group.Lookup({SumOf(0, bags)}).ok());
  std::vector<ValuesByKey> sums;
  ASSERT_TRUE(group.Backward({{0.5f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f}}, &sums).ok());
  std::multiset<float> firsts;
  for (const auto& [reference, row] : sums[0]) firsts.insert(row[0]);
  EXPECT_EQ(firsts,
            (std::multiset<float>{2.0f + 4.0f, static_cast<float>(occurrences) * 0.5f + 2.0f + 4.0f}));
}

TEST_P(GradientContract, ALookupThatOnlyReadsHasNone) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("table", 2)});
  const ContractBatch batch = {SumOf(0, {std::vector<int64_t>(300, 7)})};
  for (const bool training : {true, false}) {
    ASSERT_TRUE(group.Lookup(batch, training).ok());
    std::vector<ValuesByKey> sums;
    ASSERT_TRUE(group.Backward({{0.5f, 1.0f}}, &sums).ok());
    EXPECT_EQ(sums[0].size(), training ? 1u : 0u);
  }
}

TEST_P(WeightsContract, GradientsOfWeightsEqualTheReference) {
  for (const int64_t bags : NumbersOfBags(GetParam())) {
    for (const bool training : {true, false}) {
      InlineExecutor executor;
      ContractGroup group(GetParam(), executor, ManyTables());
      ContractBatch batch = RandomBatch(static_cast<uint32_t>(bags), bags, kDims);
      // Weights of at least 1, or 0: a divisor near zero would magnify rounding without bound.
      for (ContractLookup& lookup : batch) {
        for (ReferenceBag& bag : lookup.bags) {
          for (double& weight : bag.weights) weight = weight == 0.0 ? 0.0 : weight + 1.0;
        }
      }
      const OutputValues gradients = group.RandomGradients(batch, 4);
      ASSERT_TRUE(group.Lookup(batch, training).ok());
      OutputValues weight_gradients;
      ASSERT_TRUE(group.WeightGradients(gradients, &weight_gradients).ok());
      TrainingReference(ManyTables()).ExpectWeightGradients(batch, gradients, weight_gradients);
    }
  }
}

// Takes some steps of one optimizer on random batches, one of them empty, each by a call of `step`. With 6
// bags per lookup, tables of 65 columns have more values than a block has threads.
template <typename Step>
void TrainBesideReference(const EngineCase& engine, const std::string& optimizer, const Step& step) {
  ThreadPool executor(2);
  ContractGroup group(engine, executor, ManyTables());
  TrainingReference reference(ManyTables());
  const uint32_t steps = engine.is_slow ? 3 : 6;
  for (uint32_t i = 0; i < steps; ++i) {
    const ContractBatch batch = RandomBatch(i, i == 1 ? 0 : engine.is_slow ? 6 : 30, kDims);
    const OutputValues gradients = group.RandomGradients(batch, i + 1);
    const std::vector<float> hyper = SampleHyper(optimizer, i);
    ASSERT_TRUE(group.Lookup(batch).ok());
    const Status status = step(group, gradients, optimizer, hyper);
    ASSERT_TRUE(status.ok()) << optimizer << ": " << status.message();
    reference.Step(batch, gradients, optimizer, hyper);
  }
  reference.ExpectRows(group, 1e-4);
  for (size_t t = 0; t < kDims.size(); ++t) {
    EXPECT_EQ(group.table(t).Describe().optimizer, optimizer);
    EXPECT_EQ(group.table(t).Describe().steps, steps);
  }
}

TEST_P(TrainingContract, StepsOfEveryOptimizerEqualTheReference) {
  for (const std::string& optimizer : GetParam().optimizers) {
    SCOPED_TRACE(optimizer);
    TrainBesideReference(
        GetParam(), optimizer,
        [](ContractGroup& group, const OutputValues& gradients, const std::string& name,
           const std::vector<float>& hyper) { return group.BackwardAndApply(gradients, name, hyper); });
  }
}

TEST_P(FusedContract, StepsOfEveryOptimizerEqualTheReference) {
  for (const std::string& optimizer : GetParam().optimizers) {
    SCOPED_TRACE(optimizer);
    TrainBesideReference(GetParam(), optimizer,
                         [](ContractGroup& group, const OutputValues& gradients, const std::string& name,
                            const std::vector<float>& hyper) { return group.Train(gradients, name, hyper); });
  }
}

// Rows and slots in 16 bits: after a few steps as far from the reference, which rounds nothing, as roundings
// can take them, each of at most a 128th with bfloat16.
TEST_P(RecordTypesContract, StepsStayNearTheReference) {
  constexpr FloatType kBf16 = FloatType::kBfloat16;
  const RecordFormat formats[] = {{kBf16, kBf16},
                                  {FloatType::kFloat16, FloatType::kFloat32},
                                  {kBf16, kBf16, Rounding::kNearest},
                                  {FloatType::kFloat32, kBf16}};
  size_t next = 0;
  for (const std::string& optimizer : GetParam().optimizers) {
    if (FindRule(optimizer).value()->untouched != UntouchedRows::kStay) continue;
    SCOPED_TRACE(optimizer);
    std::vector<TableOptions> options = ManyTables();
    for (TableOptions& table : options) table.record = formats[next++ % std::size(formats)];
    ThreadPool executor(2);
    ContractGroup group(GetParam(), executor, options);
    TrainingReference reference(options);
    for (uint32_t i = 0; i < 3; ++i) {
      const ContractBatch batch = RandomBatch(i, GetParam().is_slow ? 6 : 30, kDims);
      const OutputValues gradients = group.RandomGradients(batch, i + 1);
      const std::vector<float> hyper = SampleHyper(optimizer, i);
      ASSERT_TRUE(group.Lookup(batch).ok());
      const Status status = i == 1 ? group.Train(gradients, optimizer, hyper)
                                   : group.BackwardAndApply(gradients, optimizer, hyper);
      ASSERT_TRUE(status.ok()) << status.message();
      reference.Step(batch, gradients, optimizer, hyper);
    }
    reference.ExpectRows(group, 4.0 / 128);
  }
}

TEST_P(FusedContract, FusedAndSeparateStepsGiveTheSameBitsOnAnyNumberOfThreads) {
  for (const std::string& optimizer : GetParam().optimizers) {
    std::vector<ValuesByKey> first;
    for (const int threads : GetParam().threads) {
      for (const bool fused : {false, true}) {
        ThreadPool executor(threads, /*min_block_ns=*/0);
        ContractGroup group(GetParam(), executor, ManyTables());
        std::set<int64_t> keys;
        for (uint32_t i = 0; i < (GetParam().is_slow ? 2 : 3); ++i) {
          const ContractBatch batch = RandomBatch(i, GetParam().is_slow ? 6 : 60, kDims);
          for (const ContractLookup& lookup : batch) {
            for (const ReferenceBag& bag : lookup.bags) keys.insert(bag.ids.begin(), bag.ids.end());
          }
          const OutputValues gradients = group.RandomGradients(batch, i);
          const std::vector<float> hyper = SampleHyper(optimizer, i);
          ASSERT_TRUE(group.Lookup(batch).ok());
          ASSERT_TRUE((fused ? group.Train(gradients, optimizer, hyper)
                             : group.BackwardAndApply(gradients, optimizer, hyper))
                          .ok());
        }
        std::vector<ValuesByKey> rows;
        for (size_t t = 0; t < kDims.size(); ++t) {
          rows.push_back(group.Rows(t, std::vector<int64_t>(keys.begin(), keys.end())));
        }
        if (first.empty()) first = rows;
        EXPECT_EQ(rows, first) << optimizer << ", " << threads << " threads, fused: " << fused;
      }
    }
  }
}

// What an optimizer remembers of past steps ends when betas or decay factors change: then all rows catch up,
// wherever they are.
TEST_P(TrainingContract, AllRowsCatchUpWhenTheirHistoryEnds) {
  InlineExecutor executor;
  for (const std::string& optimizer : GetParam().optimizers) {
    if (FindRule(optimizer).value()->untouched == UntouchedRows::kStay) continue;
    SCOPED_TRACE(optimizer);
    ContractGroup group(GetParam(), executor, {ContractOptions("table", 3)});
    TrainingReference reference({ContractOptions("table", 3)});
    // More rows than a table with tiers has memory for, and few in a call: memory grows for all rows of a
    // call.
    for (uint32_t i = 0; i < 24; ++i) {
      const int64_t first = i % 20 * 4;
      const ContractBatch batch = {SumOf(0, {{first, first + 1}, {first + 2}, {first + 3}})};
      const OutputValues gradients = group.RandomGradients(batch, i);
      std::vector<float> hyper = SampleHyper(optimizer, 0);
      if (i >= 22) {
        for (size_t k = 1; k < hyper.size(); ++k) hyper[k] *= 0.875f;
      }
      ASSERT_TRUE(group.Lookup(batch).ok());
      const Status status = i % 2 == 0 ? group.BackwardAndApply(gradients, optimizer, hyper)
                                       : group.Train(gradients, optimizer, hyper);
      ASSERT_TRUE(status.ok()) << status.message();
      reference.Step(batch, gradients, optimizer, hyper);
    }
    reference.ExpectRows(group, 1e-4);
  }
}

TEST_P(TrainingContract, GradientsOfARepeatedRowAreSummedFirst) {
  InlineExecutor executor;
  for (const std::string& optimizer : GetParam().optimizers) {
    const std::vector<float> hyper = SampleHyper(optimizer, 0);
    std::vector<ValuesByKey> results;
    for (const bool repeated : {false, true}) {
      ContractGroup group(GetParam(), executor, {ContractOptions("table", 1)});
      ASSERT_TRUE(group.Lookup({SumOf(0, {{5}})}).ok());
      const auto reference = EngineArray<int64_t>::Unwritten(group.memory(), 1);
      ASSERT_TRUE(group.plan().WriteReferences(group.context(), 0, reference.data()).ok());
      const int64_t row = reference.Read()[0];
      const EngineArray<int64_t> references(
          group.memory(), repeated ? std::vector<int64_t>{row, row, row} : std::vector<int64_t>{row});
      const EngineArray<float> grads(
          group.memory(), repeated ? std::vector<float>{0.5f, 0.25f, 1.0f} : std::vector<float>{1.75f});
      ASSERT_TRUE(group.table(0)
                      .ApplyGradients(group.context(), optimizer, hyper, references.view(), grads.data(),
                                      /*distinct=*/!repeated)
                      .ok());
      results.push_back(group.Rows(0, {5}));
    }
    EXPECT_EQ(results[0], results[1]) << optimizer;
  }
}

TEST_P(TrainingContract, BadStepsAreRefusedByNameAndChangeNothing) {
  InlineExecutor executor;
  const TableOptions options = ContractOptions("table", 1);
  ContractGroup group(GetParam(), executor, {options});
  ASSERT_TRUE(group.Lookup({SumOf(0, {{5}})}).ok());
  ExpectNames(group.BackwardAndApply({{1.0f}}, "no_such_optimizer", {1.0f}), StatusCode::kInvalidArgument,
              {"'table'", "no_such_optimizer"});
  ExpectNames(group.BackwardAndApply({{1.0f}}, "sgd", {1.0f, 2.0f}), StatusCode::kInvalidArgument,
              {"'table'"});
  ExpectNames(group.BackwardAndApply({{1.0f}}, "sgd", {std::nanf("")}), StatusCode::kInvalidArgument,
              {"'table'", "nan"});
  const EngineArray<int64_t> unknown(group.memory(), {99});
  const EngineArray<float> grads(group.memory(), {1.0f});
  ExpectNames(group.table(0).ApplyGradients(group.context(), "sgd", std::vector<float>{1.0f}, unknown.view(),
                                            grads.data(), true),
              StatusCode::kInvalidArgument, {"'table'", "99"});
  EXPECT_EQ(group.Rows(0, {5})[5], ReferenceInitialRow(options, 5));
  EXPECT_EQ(group.table(0).Describe().optimizer, "");
  EXPECT_EQ(group.table(0).Describe().steps, 0);
}

TEST_P(FusedContract, RowsCatchUpWithStepsThatCameAfterTheirLookup) {
  InlineExecutor executor;
  for (const std::string& optimizer : GetParam().optimizers) {
    const std::vector<float> hyper = SampleHyper(optimizer, 0);
    std::vector<ValuesByKey> results;
    for (const bool fused : {false, true}) {
      ContractGroup group(GetParam(), executor, {ContractOptions("table", 1)});
      const auto step = [&](const OutputValues& gradients) {
        return fused ? group.Train(gradients, optimizer, hyper)
                     : group.BackwardAndApply(gradients, optimizer, hyper);
      };
      ASSERT_TRUE(group.Lookup({SumOf(0, {{5}, {7}})}).ok());
      ASSERT_TRUE(step({{1.0f, 0.5f}}).ok());
      ASSERT_TRUE(group.Lookup({SumOf(0, {{9}})}).ok());
      const auto reference = EngineArray<int64_t>::Unwritten(group.memory(), 1);
      ASSERT_TRUE(group.plan().WriteReferences(group.context(), 0, reference.data()).ok());
      ASSERT_TRUE(group.Lookup({SumOf(0, {{5}, {7}})}).ok());
      const EngineArray<float> grads(group.memory(), {0.25f});
      ASSERT_TRUE(group.table(0)
                      .ApplyGradients(group.context(), optimizer, hyper, reference.view(), grads.data(),
                                      /*distinct=*/true)
                      .ok());
      ASSERT_TRUE(step({{0.5f, 0.125f}}).ok());
      results.push_back(group.Rows(0, {5, 7, 9}));
    }
    EXPECT_EQ(results[0], results[1]) << optimizer;
  }
}

// In tables with tiers they may take the step's rows out of memory.
TEST_P(FusedContract, OtherLookupsMayComeBetweenALookupAndItsStep) {
  InlineExecutor executor;
  for (const std::string& optimizer : GetParam().optimizers) {
    SCOPED_TRACE(optimizer);
    ContractGroup group(GetParam(), executor, {ContractOptions("table", 3)});
    TrainingReference reference({ContractOptions("table", 3)});
    const auto others = [&] {
      for (int64_t key = 1000; key < 1060; key += 4) group.Rows(0, {key, key + 1, key + 2, key + 3});
    };
    const std::vector<float> hyper = SampleHyper(optimizer, 0);
    for (int64_t key = 1000; key < 1060; key += 4) {
      ASSERT_TRUE(group.Lookup({SumOf(0, {{key, key + 1}, {key + 2, key + 3}})}).ok());
    }
    for (uint32_t i = 0; i < 3; ++i) {
      const ContractBatch batch = RandomBatch(i, 3, {3});
      const OutputValues gradients = group.RandomGradients(batch, i);
      ASSERT_TRUE(group.Lookup(batch).ok());
      others();
      if (i == 0) {
        OutputValues weight_gradients;
        ASSERT_TRUE(group.WeightGradients(gradients, &weight_gradients).ok());
        reference.ExpectWeightGradients(batch, gradients, weight_gradients);
        others();
      }
      const Status status = i == 1 ? group.BackwardAndApply(gradients, optimizer, hyper)
                                   : group.Train(gradients, optimizer, hyper);
      ASSERT_TRUE(status.ok()) << status.message();
      reference.Step(batch, gradients, optimizer, hyper);
    }
    reference.ExpectRows(group, 1e-4);
  }
}

TEST_P(FusedContract, ATableKeepsItsFirstOptimizer) {
  ASSERT_GE(GetParam().optimizers.size(), 2u);
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("table", 1)});
  const std::string& first = GetParam().optimizers[0];
  const std::string& second = GetParam().optimizers[1];
  ASSERT_TRUE(group.Lookup({SumOf(0, {{5}})}).ok());
  ASSERT_TRUE(group.BackwardAndApply({{1.0f}}, first, SampleHyper(first, 0)).ok());
  const ValuesByKey before = group.Rows(0, {5});
  ExpectNames(group.BackwardAndApply({{1.0f}}, second, SampleHyper(second, 0)),
              StatusCode::kFailedPrecondition, {"'table'", first, second});
  EXPECT_EQ(group.Rows(0, {5}), before);
}

TEST_P(FusedContract, ABadStepOfOneTableChangesNoTable) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("good", 1), ContractOptions("bad", 1)});
  ASSERT_TRUE(group.Lookup({SumOf(0, {{5}}), SumOf(1, {{6}})}).ok());
  const ValuesByKey before = group.Rows(0, {5});
  ExpectNames(group.Train({{1.0f}, {1.0f}}, "sgd", {std::nanf("")}), StatusCode::kInvalidArgument, {"nan"});
  EXPECT_EQ(group.Rows(0, {5}), before);
  // The table "bad" already has another optimizer.
  const auto none = EngineArray<int64_t>::Unwritten(group.memory(), 0);
  const auto no_grads = EngineArray<float>::Unwritten(group.memory(), 0);
  const std::string& other = GetParam().optimizers.back();
  ASSERT_NE(other, "sgd");
  ASSERT_TRUE(
      group.table(1)
          .ApplyGradients(group.context(), other, SampleHyper(other, 0), none.view(), no_grads.data(), true)
          .ok());
  ExpectNames(group.Train({{1.0f}, {1.0f}}, "sgd", {1.0f}), StatusCode::kFailedPrecondition,
              {"'bad'", other});
  EXPECT_EQ(group.Rows(0, {5}), before);
  EXPECT_EQ(group.table(0).Describe().steps, 0);
}

// Rows of more floats than sums are kept in a block for, and an id with nearly all occurrences.
TEST_P(FusedContract, LongRowsAndAFrequentIdGetTheSameBits) {
  for (const int64_t dim : {17, 64, 4096, 4097}) {
    const size_t num_bags = GetParam().is_slow ? 5 : 60;
    std::vector<std::vector<int64_t>> bags(num_bags, std::vector<int64_t>(GetParam().is_slow ? 40 : 200, 7));
    for (size_t b = 0; b < num_bags; ++b) bags[b].push_back(static_cast<int64_t>(b % 20));
    const ContractBatch batch = {SumOf(0, bags)};
    std::vector<ValuesByKey> first;
    for (const int threads : GetParam().threads) {
      for (const bool fused : {false, true}) {
        ThreadPool executor(threads, /*min_block_ns=*/0);
        ContractGroup group(GetParam(), executor, {ContractOptions("long", dim)});
        const OutputValues gradients = group.RandomGradients(batch, 5);
        ASSERT_TRUE(group.Lookup(batch).ok());
        const std::vector<float> hyper = SampleHyper("adagrad", 0);
        ASSERT_TRUE((fused ? group.Train(gradients, "adagrad", hyper)
                           : group.BackwardAndApply(gradients, "adagrad", hyper))
                        .ok());
        const std::vector<ValuesByKey> rows = {group.Rows(0, {0, 1, 2, 3, 4, 7, 19})};
        if (first.empty()) first = rows;
        EXPECT_EQ(rows, first) << "dim " << dim << ", " << threads << " threads, fused: " << fused;
      }
    }
  }
}

// A gradient of an erased row is dropped, also if another key has the row by then.
void ExpectErasedRowsAreNotTrained(const EngineCase& engine, bool fused) {
  InlineExecutor executor;
  const TableOptions options = ContractOptions("table", 1);
  ContractGroup group(engine, executor, {options});
  ASSERT_TRUE(group.Lookup({SumOf(0, {{1}, {2}})}).ok());
  int64_t erased = 0;
  ASSERT_TRUE(group.Erase(0, {1}, &erased).ok());
  ASSERT_TRUE(group.Assign(0, {3}, {10.0f}).ok());
  const OutputValues ones = {{1.0f, 1.0f}};
  ASSERT_TRUE((fused ? group.Train(ones, "sgd", {1.0f}) : group.BackwardAndApply(ones, "sgd", {1.0f})).ok());
  ValuesByKey rows = group.Rows(0, {1, 2, 3});
  EXPECT_EQ(rows[1], ReferenceInitialRow(options, 1));
  EXPECT_EQ(rows[2][0], ReferenceInitialRow(options, 2)[0] - 1.0f);
  EXPECT_EQ(rows[3][0], 10.0f);
}

TEST_P(EraseContract, GradientsOfErasedRowsAreDropped) { ExpectErasedRowsAreNotTrained(GetParam(), false); }
TEST_P(FusedContract, GradientsOfErasedRowsAreDropped) { ExpectErasedRowsAreNotTrained(GetParam(), true); }

TEST_P(WeightsContract, AnErasedRowHasNone) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("table", 2)});
  ContractLookup weighted = SumOf(0, {{5, 6}});
  weighted.spec.weighted = true;
  ASSERT_TRUE(group.Lookup({weighted}).ok());
  int64_t erased = 0;
  ASSERT_TRUE(group.Erase(0, {6}, &erased).ok());
  OutputValues of_weights;
  ExpectNames(group.WeightGradients({{1.0f, 10.0f}}, &of_weights), StatusCode::kFailedPrecondition,
              {"'table'", "key 6"});
}

}  // namespace
}  // namespace sok
