// Lookups of whole groups on one rank: outputs, inserted rows, and refused inputs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/lookup_reference.h"
#include "cc/engine/contract/suites.h"

namespace sok {
namespace {

SOK_CONTRACT_SUITE(LookupContract);
SOK_CONTRACT_SUITE(PrefetchContract);
SOK_CONTRACT_SUITE(StaticContract);

const std::vector<int64_t> kDims = {16, 3, 1, 65};

// Numbers of bags: none, one, few, and enough that the bags of all lookups, or of fast engines those of every
// lookup, take several blocks of 256 threads.
std::vector<int64_t> NumbersOfBags(const EngineCase& engine) {
  if (engine.is_slowest) return {0, 12};
  if (engine.is_slow) return {0, 1, 7, 64};
  return {0, 1, 2, 7, 64, 300};
}

std::vector<TableOptions> ManyTables() {
  std::vector<TableOptions> options;
  for (size_t t = 0; t < kDims.size(); ++t) {
    options.push_back(ContractOptions("table" + std::to_string(t), kDims[t]));
  }
  GiveRows(5, &options[1]);
  options[3].initializer.rows = 11;
  return options;
}

// The distinct ids in the bags of lookups in table `t`, without those that lookups leave out.
std::set<int64_t> IdsOf(const ContractBatch& batch, int t) {
  std::set<int64_t> ids;
  for (const ContractLookup& lookup : batch) {
    if (lookup.spec.table != t) continue;
    for (const ReferenceBag& bag : lookup.bags) {
      const ReferenceBag kept = ReferenceKept(bag, lookup.spec.positive_weights_only);
      ids.insert(kept.ids.begin(), kept.ids.end());
    }
  }
  return ids;
}

ReferenceRows InitialRows(const TableOptions& options, const std::set<int64_t>& ids) {
  ReferenceRows rows;
  for (const int64_t id : ids) {
    const std::vector<float> row = ReferenceInitialRow(options, id);
    rows[id].assign(row.begin(), row.end());
  }
  return rows;
}

void ExpectOutputs(ContractGroup& group, const ContractBatch& batch) {
  for (size_t l = 0; l < batch.size(); ++l) {
    const ContractLookup& lookup = batch[l];
    const int64_t dim = group.dim(lookup);
    const TableOptions& options = group.table(static_cast<size_t>(lookup.spec.table)).options();
    const ReferenceRows rows = InitialRows(options, IdsOf(batch, lookup.spec.table));
    for (size_t b = 0; b < lookup.bags.size(); ++b) {
      const std::vector<double> expected = ReferencePool(
          rows, ReferenceKept(lookup.bags[b], lookup.spec.positive_weights_only), lookup.spec.combiner, dim);
      for (int64_t c = 0; c < dim; ++c) {
        const double value = expected[c];
        ASSERT_NEAR(group.outputs()[l][b * static_cast<size_t>(dim) + static_cast<size_t>(c)], value,
                    2e-5 * std::max(1.0, std::abs(value)))
            << "lookup " << l << ", bag " << b << ", column " << c;
      }
    }
  }
}

TEST_P(LookupContract, OutputsEqualTheReferenceWithAndWithoutTraining) {
  for (const int64_t bags : NumbersOfBags(GetParam())) {
    for (const bool training : {true, false}) {
      ThreadPool executor(2, /*min_block_ns=*/0);
      ContractGroup group(GetParam(), executor, ManyTables());
      const ContractBatch batch = RandomBatch(static_cast<uint32_t>(bags) + 1, bags, kDims);
      const Status status = group.Lookup(batch, training);
      ASSERT_TRUE(status.ok()) << status.message();
      ExpectOutputs(group, batch);
    }
  }
}

TEST_P(LookupContract, SameBitsOnAnyNumberOfThreads) {
  const ContractBatch batch = RandomBatch(5, NumbersOfBags(GetParam()).back(), kDims);
  OutputValues first;
  for (const int threads : GetParam().threads) {
    for (const bool training : {false, true}) {
      ThreadPool executor(threads, /*min_block_ns=*/0);
      ContractGroup group(GetParam(), executor, ManyTables());
      ASSERT_TRUE(group.Lookup(batch, training).ok());
      if (first.empty()) first = group.outputs();
      EXPECT_EQ(group.outputs(), first) << threads << " threads, training: " << training;
    }
  }
}

TEST_P(LookupContract, OnlyTrainingInsertsRows) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, ManyTables());
  const ContractBatch batch = RandomBatch(3, 50, kDims);
  ASSERT_TRUE(group.Lookup(batch, /*training=*/false).ok());
  for (size_t t = 0; t < kDims.size(); ++t) {
    EXPECT_EQ(group.table(t).Describe().rows, 0);
    EXPECT_EQ(group.plan().trained_rows(static_cast<int>(t)), 0);
  }
  for (int repetition = 0; repetition < 2; ++repetition) {
    ASSERT_TRUE(group.Lookup(batch).ok());
    for (size_t t = 0; t < kDims.size(); ++t) {
      const int64_t distinct = static_cast<int64_t>(IdsOf(batch, static_cast<int>(t)).size());
      EXPECT_EQ(group.table(t).Describe().rows, distinct);
      EXPECT_EQ(group.plan().trained_rows(static_cast<int>(t)), distinct);
    }
  }
}

TEST_P(LookupContract, CountsTrainingLookups) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("counted", 2)});
  const ContractBatch batch = {SumOf(0, {{5, 6, 5}, {}}), SumOf(0, {{6}, {7}})};
  ASSERT_TRUE(group.Lookup(batch, /*training=*/false).ok());
  EXPECT_EQ(group.table(0).lookup_counts().ids, 0);
  ASSERT_TRUE(group.Lookup(batch).ok());
  ASSERT_TRUE(group.Lookup(batch).ok());
  EXPECT_EQ(group.table(0).lookup_counts().ids, 10);
  EXPECT_EQ(group.table(0).lookup_counts().distinct_ids, 6);
  EXPECT_EQ(group.table(0).lookup_counts().admitted_ids, 3);
}

TEST_P(LookupContract, AFullTableRefusesTheWholeLookup) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("bounded", 2, /*capacity=*/3)});
  ASSERT_TRUE(group.Lookup({SumOf(0, {{1, 2}})}).ok());
  ExpectNames(group.Lookup({SumOf(0, {{3, 4}})}), StatusCode::kResourceExhausted,
              {"'bounded'", "holds 2", "at most 3", "2 new keys"});
  EXPECT_EQ(group.table(0).Describe().rows, 2) << "after an error nothing was inserted";
  ASSERT_TRUE(group.Lookup({SumOf(0, {{2, 3, 1}})}).ok());
  EXPECT_EQ(group.table(0).Describe().rows, 3);
}

TEST_P(LookupContract, GroupsThatShareTablesInOppositeOrdersDoNotDeadlock) {
  InlineExecutor executor;
  ContractGroup forward(GetParam(), executor, {ContractOptions("one", 2), ContractOptions("two", 2)});
  ContractGroup backward(GetParam(), executor, forward, /*reverse=*/true);
  const int rounds = GetParam().is_slow ? 5 : 300;
  ThreadPool sides(2);
  sides.ParallelFor(2, 1 << 30, [&](int64_t begin, int64_t end) {
    for (int64_t side = begin; side < end; ++side) {
      ContractGroup& group = side == 0 ? forward : backward;
      for (int round = 0; round < rounds; ++round) {
        EXPECT_TRUE(group.Lookup({SumOf(0, {{round}}), SumOf(1, {{round}})}).ok());
      }
    }
  });
  for (size_t t = 0; t < 2; ++t) EXPECT_EQ(forward.table(t).Describe().rows, rounds);
}

TEST_P(StaticContract, TheKeyIsTheRow) {
  InlineExecutor executor;
  TableOptions options = ContractOptions("direct", 2, /*capacity=*/4);
  options.use_hashtable = false;
  ContractGroup group(GetParam(), executor, {options});
  EXPECT_EQ(group.table(0).Describe().rows, 4) << "all rows are there from the start";
  const ContractBatch batch = {SumOf(0, {{3, 0}, {2}})};
  ASSERT_TRUE(group.Lookup(batch).ok());
  ExpectOutputs(group, batch);
  for (const int64_t key : {int64_t{4}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    for (const bool training : {true, false}) {
      ExpectNames(group.Lookup({SumOf(0, {{1, key}})}, training), StatusCode::kInvalidArgument,
                  {"'direct'", std::to_string(key)});
    }
  }
}

// Hostile inputs: the error names the variable and the value, and the table is unchanged.
class BadInput {
 public:
  BadInput(const EngineCase& engine, const ContractLookup& lookup)
      : engine_(engine),
        group_(engine, executor_, {ContractOptions("strict", 2)}),
        arrays_(*engine.memory, {lookup}),
        input_(arrays_.inputs()[0]),
        spec_(lookup.spec),
        output_(EngineArray<float>::Unwritten(*engine.memory, 1000)) {}

  LookupInput& input() { return input_; }

  void ExpectRefused(const std::vector<std::string>& words) {
    for (const bool training : {true, false}) {
      const std::unique_ptr<GroupPlan> plan = engine_.engine->NewPlan();
      const std::unique_ptr<EngineScratch> scratch = engine_.engine->NewScratch();
      const OutputRows rows{output_.data(), 2};
      std::vector<std::string> all = {"'strict'"};
      all.insert(all.end(), words.begin(), words.end());
      ExpectNames(engine_.engine->Lookup(group_.context(),
                                         {group_.tables(), Span<const LookupSpec>(&spec_, 1),
                                          Span<const LookupInput>(&input_, 1), training},
                                         plan.get(), Span<const OutputRows>(&rows, 1), scratch.get()),
                  StatusCode::kInvalidArgument, all);
    }
    EXPECT_EQ(group_.table(0).Describe().rows, 0);
  }

 private:
  const EngineCase& engine_;
  InlineExecutor executor_;
  ContractGroup group_;
  BatchArrays arrays_;
  LookupInput input_;
  LookupSpec spec_;
  EngineArray<float> output_;
};

TEST_P(LookupContract, RefusesIndicesOutsideTheBags) {
  for (const int64_t row : {int64_t{2}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    BadInput bad(GetParam(), SumOf(0, {{5, 6}, {7}}));
    const EngineArray<int64_t> indices(*GetParam().memory, {0, 0, row, 1, 1, 0});
    bad.input().indices = indices.data();
    bad.ExpectRefused({"index 1", std::to_string(row)});
  }
}

TEST_P(LookupContract, RefusesRowSplitsThatDoNotRiseToTheNumberOfIds) {
  ContractLookup ragged = SumOf(0, {{5, 6}, {7}});
  ragged.spec.layout = IdLayout::kRagged;
  const std::vector<std::pair<std::vector<int64_t>, std::vector<std::string>>> cases = {
      {{1, 2, 3}, {"1", "not 0"}}, {{0, 4, 3}, {"4", "3", "position 2"}},
      {{0, 2, 2}, {"2", "3"}},     {{0, INT64_MAX, 3}, {std::to_string(INT64_MAX)}},
      {{0, -1, 3}, {"-1"}},
  };
  for (const auto& [splits, words] : cases) {
    BadInput bad(GetParam(), ragged);
    const EngineArray<int64_t> array(*GetParam().memory, splits);
    bad.input().row_splits = array.data();
    bad.ExpectRefused(words);
  }
}

TEST_P(LookupContract, RefusesWeightsThatAreNotFinite) {
  for (const float weight : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    ContractLookup weighted = SumOf(0, {{5, 6}, {7}});
    weighted.spec.weighted = true;
    BadInput bad(GetParam(), weighted);
    const EngineArray<float> weights(*GetParam().memory, {1.0f, 2.0f, weight});
    bad.input().weights = weights.data();
    bad.ExpectRefused({"weight 2"});
  }
}

TEST_P(WeightsContract, RefusesWeightsWithOtherIndices) {
  ContractLookup weighted = SumOf(0, {{5, 6}, {7}});
  weighted.spec.weighted = true;
  BadInput bad(GetParam(), weighted);
  const EngineArray<int64_t> places(*GetParam().memory, {0, 0, 0, 1, 1, 1});
  bad.input().weight_places = places.data();
  bad.ExpectRefused({"element 5", "1"});
}

TEST_P(PrefetchContract, MergeAndReadEqualALookup) {
  for (const int64_t bags : NumbersOfBags(GetParam())) {
    for (const bool training : {true, false}) {
      InlineExecutor executor;
      ContractGroup whole(GetParam(), executor, ManyTables());
      ContractGroup parts(GetParam(), executor, ManyTables());
      for (uint32_t step = 0; step < 2; ++step) {
        const ContractBatch batch = RandomBatch(static_cast<uint32_t>(bags) + step, bags, kDims);
        ASSERT_TRUE(whole.Lookup(batch, training).ok());
        ASSERT_TRUE(parts.Merge(batch, training).ok());
        ASSERT_TRUE(parts.Read().ok());
        EXPECT_EQ(parts.outputs(), whole.outputs());
        for (size_t t = 0; t < kDims.size(); ++t) {
          EXPECT_EQ(parts.table(t).Describe().rows, whole.table(t).Describe().rows);
        }
      }
    }
  }
}

TEST_P(PrefetchContract, ReadSeesTheRowsAtTheTimeOfRead) {
  InlineExecutor executor;
  ContractGroup group(GetParam(), executor, {ContractOptions("table", 2)});
  ASSERT_TRUE(group.Merge({SumOf(0, {{5}, {6}})}).ok());
  EXPECT_EQ(group.table(0).Describe().rows, 0) << "Merge inserts no rows";
  ASSERT_TRUE(group.Assign(0, {5, 6}, {1.0f, 2.0f, 3.0f, 4.0f}).ok());
  ASSERT_TRUE(group.Read().ok());
  EXPECT_EQ(group.outputs()[0], (std::vector<float>{1.0f, 2.0f, 3.0f, 4.0f}));
}

// What happens to a table between Merge and Read is as if it had happened before both.
void ExpectReadAfter(const EngineCase& engine, const TableOptions& options,
                     const std::function<void(ContractGroup&)>& before,
                     const std::function<void(ContractGroup&)>& between) {
  const ContractBatch batch = {SumOf(0, {{1, 2}, {2, 3}, {9, 1}})};
  InlineExecutor executor;
  ContractGroup whole(engine, executor, {options});
  ContractGroup parts(engine, executor, {options});
  ContractGroup beside_whole(engine, executor, whole);
  ContractGroup beside_parts(engine, executor, parts);
  before(beside_whole);
  between(beside_whole);
  const Status status = whole.Lookup(batch);
  before(beside_parts);
  ASSERT_TRUE(parts.Merge(batch).ok());
  between(beside_parts);
  const Status read = parts.Read();
  ASSERT_EQ(read.code(), status.code()) << read.message();
  EXPECT_EQ(read.message(), status.message());
  if (status.ok()) {
    EXPECT_EQ(parts.outputs(), whole.outputs());
  }
  const std::vector<int64_t> keys = {1, 2, 3, 9, 4, 20, 21, 22};
  EXPECT_EQ(parts.Rows(0, keys), whole.Rows(0, keys));
  EXPECT_EQ(parts.table(0).Describe().rows, whole.table(0).Describe().rows);
}

// A training lookup of `ids` and a step.
std::function<void(ContractGroup&)> StepOf(std::vector<int64_t> ids, const std::string& optimizer,
                                           std::vector<float> hyper) {
  return [=](ContractGroup& group) {
    ASSERT_TRUE(group.Lookup({SumOf(0, {ids})}).ok());
    ASSERT_TRUE(group.BackwardAndApply({{0.25f, -0.5f, 1.0f}}, optimizer, hyper).ok());
  };
}

TEST_P(PrefetchContract, ReadSeesWhatHappenedSinceMerge) {
  const std::vector<float> sgd = {0.5f};
  const std::vector<float> adam = {0.1f, 0.9f, 0.999f, 1e-7f};
  const TableOptions plain = ContractOptions("table", 3);
  ExpectReadAfter(GetParam(), plain, StepOf({2, 3, 4}, "sgd", sgd), StepOf({2, 3, 4}, "sgd", sgd));
  // Read brings rows up to date with the steps that they missed.
  ExpectReadAfter(GetParam(), plain, StepOf({2}, "adam", adam), StepOf({4}, "adam", adam));
  // Rows that were evicted are inserted again.
  for (const OnFull on_full : {OnFull::kEvictLru, OnFull::kEvictLfu}) {
    TableOptions full = ContractOptions("full", 3, /*capacity=*/4);
    full.on_full = on_full;
    ExpectReadAfter(GetParam(), full, StepOf({1, 2, 3, 9}, "sgd", sgd), StepOf({20, 21, 22}, "sgd", sgd));
  }
  // Ids that were admitted have rows.
  TableOptions counter = plain;
  counter.admission.kind = Admission::Kind::kCounter;
  counter.admission.filter_freq = 3;
  counter.admission.default_value = 0.5f;
  ExpectReadAfter(GetParam(), counter, StepOf({3}, "sgd", sgd), StepOf({3, 3}, "sgd", sgd));
  // A lookup that does not fit is an error of Read.
  ExpectReadAfter(GetParam(), ContractOptions("small", 3, /*capacity=*/3), StepOf({1}, "sgd", sgd),
                  StepOf({4}, "sgd", sgd));
}

}  // namespace
}  // namespace sok
