// Groups over ranks: the same numbers as one process gives for the batches of all ranks, and the same errors
// on all ranks.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/engine/contract/contract_ranks.h"
#include "cc/engine/contract/suites.h"
#include "cc/engine/contract/training_reference.h"

namespace sok {
namespace {

SOK_CONTRACT_SUITE(RanksContract);

// The first tables answer with rows; the last one, with one pooled lookup without weights, with sums.
const std::vector<int64_t> kDims = {16, 3, 1, 5};
const std::vector<ExchangeMode> kModes = {ExchangeMode::kRows, ExchangeMode::kRows, ExchangeMode::kRows,
                                          ExchangeMode::kSums};

std::vector<TableOptions> Tables() {
  std::vector<TableOptions> options;
  for (size_t t = 0; t < kDims.size(); ++t) {
    options.push_back(ContractOptions("table" + std::to_string(t), kDims[t]));
  }
  options[1].initializer.rows = 5;
  GiveRows(3, &options[3]);
  return options;
}

ContractBatch BatchOfRank(uint32_t seed, int64_t bags) {
  ContractBatch batch = RandomBatch(seed, bags, {kDims.begin(), kDims.end() - 1});
  ContractLookup summed = RandomBatch(seed + 1, bags, kDims)[4];
  summed.spec = LookupSpec();
  summed.spec.layout = IdLayout::kSparse;
  summed.spec.table = 3;
  summed.spec.combiner = Combiner::kMean;
  summed.spec.keeps_bags = true;
  for (ReferenceBag& bag : summed.bags) bag.weights.assign(bag.ids.size(), 1.0);
  batch.push_back(summed);
  return batch;
}

std::vector<ContractBatch> BatchesOfRanks(uint32_t seed, int ranks, int64_t bags) {
  std::vector<ContractBatch> batches;
  // Ranks have batches of different sizes, and one batch is empty.
  for (int r = 0; r < ranks; ++r) {
    batches.push_back(BatchOfRank(seed + static_cast<uint32_t>(r), r == 1 && seed % 2 == 1 ? 0 : bags + r));
  }
  return batches;
}

TEST_P(RanksContract, OutputsAndTrainedRowsEqualOneProcess) {
  const bool is_slow = GetParam().is_slow;
  for (const int ranks : GetParam().ranks) {
    for (const bool fused : {true, false}) {
      if (is_slow && fused != (ranks % 2 == 0)) continue;
      SCOPED_TRACE(std::to_string(ranks) + " ranks, fused: " + std::to_string(fused));
      ThreadPool executor(2);
      ContractRanks group(GetParam(), executor, ranks, Tables(), kModes);
      ContractGroup one(GetParam(), executor, Tables());
      std::vector<std::set<int64_t>> keys(kDims.size());
      for (uint32_t step = 0; step < (is_slow ? 2 : 3); ++step) {
        const std::vector<ContractBatch> batches = BatchesOfRanks(step, ranks, is_slow ? 5 : 20);
        std::vector<OutputValues> gradients;
        ContractBatch all;
        OutputValues all_gradients;
        for (const ContractBatch& batch : batches) {
          gradients.push_back(one.RandomGradients(batch, step));
          all.insert(all.end(), batch.begin(), batch.end());
          all_gradients.insert(all_gradients.end(), gradients.back().begin(), gradients.back().end());
          for (const ContractLookup& lookup : batch) {
            for (const ReferenceBag& bag : lookup.bags) {
              keys[lookup.spec.table].insert(bag.ids.begin(), bag.ids.end());
            }
          }
        }
        group.Forward(batches);
        ASSERT_TRUE(one.Lookup(all).ok());
        size_t lookup = 0;
        for (int r = 0; r < ranks; ++r) {
          ASSERT_TRUE(group.status(r).ok()) << group.status(r).message();
          for (const std::vector<float>& output : group.outputs(r)) {
            const std::vector<float>& expected = one.outputs()[lookup++];
            ASSERT_EQ(output.size(), expected.size());
            for (size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(output[i], expected[i], 2e-5);
          }
        }
        group.Train(gradients, "sgd", {0.5f}, fused);
        for (int r = 0; r < ranks; ++r) ASSERT_TRUE(group.status(r).ok()) << group.status(r).message();
        ASSERT_TRUE(one.BackwardAndApply(all_gradients, "sgd", {0.5f}).ok());
      }
      for (size_t t = 0; t < kDims.size(); ++t) {
        const std::vector<int64_t> list(keys[t].begin(), keys[t].end());
        const ValuesByKey expected = one.Rows(t, list);
        for (const auto& [key, row] : group.Rows(t, list)) {
          for (size_t c = 0; c < row.size(); ++c) {
            ASSERT_NEAR(row[c], expected.at(key)[c], 1e-4 * std::max(1.0f, std::abs(row[c])))
                << "key " << key;
          }
        }
        int64_t rows = 0;
        for (int r = 0; r < ranks; ++r) rows += group.table(r, t).Describe().rows;
        EXPECT_EQ(rows, one.table(t).Describe().rows) << "every row is on one rank";
      }
    }
  }
}

TEST_P(RanksContract, GradientsOfWeightsEqualOneRank) {
  for (const int ranks : {2, 3}) {
    InlineExecutor executor;
    ContractRanks group(GetParam(), executor, ranks, Tables(), kModes);
    const std::vector<ContractBatch> batches = BatchesOfRanks(4, ranks, GetParam().is_slow ? 5 : 20);
    group.Forward(batches);
    for (int r = 0; r < ranks; ++r) {
      ContractGroup one(GetParam(), executor, Tables());
      const OutputValues gradients = one.RandomGradients(batches[r], 3);
      ASSERT_TRUE(one.Lookup(batches[r]).ok());
      OutputValues expected;
      OutputValues actual;
      ASSERT_TRUE(one.WeightGradients(gradients, &expected).ok());
      ASSERT_TRUE(group.WeightGradients(r, gradients, &actual).ok());
      for (size_t l = 0; l < expected.size(); ++l) {
        if (!batches[r][l].spec.weighted) continue;
        EXPECT_EQ(actual[l], expected[l]) << "rank " << r << ", lookup " << l;
      }
    }
  }
}

TEST_P(RanksContract, AnErrorOfOneRankReachesAllRanksAndChangesNothing) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 3, Tables(), kModes);
  const std::vector<ContractBatch> batches = BatchesOfRanks(2, 3, 5);
  group.Forward(batches, true, {OkStatus(), InvalidArgument("what rank 1 found"), OkStatus()});
  for (int r = 0; r < 3; ++r) {
    ExpectNames(group.status(r), StatusCode::kInvalidArgument, {"what rank 1 found", "rank 1"});
    for (size_t t = 0; t < kDims.size(); ++t) EXPECT_EQ(group.table(r, t).Describe().rows, 0);
  }
  group.Forward(batches);
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(group.status(r).ok()) << "the next step succeeds";
}

TEST_P(RanksContract, TheBackwardPassOfAFailedLookupIsRefused) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 2, {ContractOptions("table", 1)}, {ExchangeMode::kRows});
  ContractLookup weighted = SumOf(0, {{1}});
  weighted.spec.weighted = true;
  group.Forward({{weighted}, {weighted}}, true, {InvalidArgument("bad"), OkStatus()});
  EXPECT_EQ(group.Reduce(0, {{1.0f}}).code(), StatusCode::kFailedPrecondition);
  OutputValues weight_gradients;
  EXPECT_EQ(group.WeightGradients(0, {{1.0f}}, &weight_gradients).code(), StatusCode::kFailedPrecondition);
  for (int r = 0; r < 2; ++r) EXPECT_EQ(group.served(r).trained_rows(0), 0);
}

TEST_P(RanksContract, AFullTableOnOneRankIsAnErrorOnAllRanks) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 2, {ContractOptions("bounded", 1, /*capacity=*/2)},
                      {ExchangeMode::kRows});
  const ContractBatch fits = {SumOf(0, {{0, 1, 2}})};
  const ContractBatch too_many = {SumOf(0, {{4, 6}})};
  group.Forward({fits, too_many});
  for (int r = 0; r < 2; ++r) {
    ExpectNames(group.status(r), StatusCode::kResourceExhausted, {"'bounded'", "2"});
  }
}

TEST_P(RanksContract, TablesThatDifferBetweenRanksAreAnError) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 2, {ContractOptions("table", 1)}, {ExchangeMode::kRows});
  ContractRanks other(GetParam(), executor, 2, {ContractOptions("table", 1, /*capacity=*/9)},
                      {ExchangeMode::kRows});
  group.SwapRank(1, &other);
  group.Forward({{SumOf(0, {{1, 2}})}, {SumOf(0, {{3}})}});
  for (int r = 0; r < 2; ++r) ExpectNames(group.status(r), StatusCode::kFailedPrecondition, {"'table'", "9"});
}

TEST_P(RanksContract, ATableOfSumsHasOneLookupPooledWithoutWeights) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 2, {ContractOptions("rows", 1), ContractOptions("sums", 1)},
                      {ExchangeMode::kRows, ExchangeMode::kSums});
  ContractLookup summed = SumOf(1, {{1, 2}, {2}});
  summed.spec.keeps_bags = true;
  ContractLookup weighted = summed;
  weighted.spec.weighted = true;
  ContractLookup dense = summed;
  dense.spec.layout = IdLayout::kDense;
  dense.bags = {{{1}, {1.0}}};
  const ContractLookup other = SumOf(0, {{1, 2}});
  const auto expect = [&](const ContractBatch& batch, const std::string& found) {
    group.Forward({batch, batch});
    for (int r = 0; r < 2; ++r) {
      ExpectNames(group.status(r), StatusCode::kInvalidArgument,
                  {"On rank 0: Lookup in embedding variable 'sums' over ranks: ranks send sums for a table "
                   "with exactly one lookup in the group, pooled and without weights, but this group has " +
                   found});
      for (size_t t = 0; t < 2; ++t) EXPECT_EQ(group.table(r, t).Describe().rows, 0);
    }
  };
  expect({other}, "0 lookups in it");
  expect({}, "0 lookups in it");
  expect({summed, other, summed}, "2 lookups in it");
  expect({weighted, other}, "one of another kind");
  expect({other, dense}, "one of another kind");
  group.Forward({{other, summed}, {summed}});
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(group.status(r).ok()) << "the next step succeeds";
}

// A rank that only reads sees what the step's training leaves in the table: not the row that was there before
// it, which another key may have by then.
TEST_P(RanksContract, ARankThatReadsSeesTheTableAfterTheOthersTraining) {
  InlineExecutor executor;
  for (const ExchangeMode mode : {ExchangeMode::kRows, ExchangeMode::kSums}) {
    for (const int reader : {0, 1}) {
      if (GetParam().is_slow && (mode == ExchangeMode::kSums) == (reader == 1)) continue;
      SCOPED_TRACE("rank " + std::to_string(reader) + " reads");
      TableOptions options = ContractOptions("full", 2, /*capacity=*/2);
      options.on_full = OnFull::kEvictLru;
      ContractRanks group(GetParam(), executor, 2, {options}, {mode});
      const auto lookup_of = [](std::vector<std::vector<int64_t>> bags) {
        ContractLookup lookup = SumOf(0, std::move(bags));
        lookup.spec.keeps_bags = true;
        return lookup;
      };
      // Rank 0 has the even keys, rank 1 the odd ones; each has room for two.
      const std::vector<int64_t> keys = {0, 1, 2, 3, 4, 5};
      const ValuesByKey initial = group.Rows(0, keys);
      const auto of_ranks = [&](const ContractLookup& trains, const ContractLookup& reads) {
        return reader == 0 ? std::vector<ContractBatch>{{reads}, {trains}}
                           : std::vector<ContractBatch>{{trains}, {reads}};
      };
      const ContractLookup first = lookup_of({{0}, {1}, {2}, {3}});
      group.Forward(of_ranks(first, lookup_of({{}})));
      OutputValues ones = {std::vector<float>(8, 1.0f)};
      OutputValues none = {std::vector<float>(2, 0.0f)};
      group.Train(reader == 0 ? std::vector<OutputValues>{none, ones} : std::vector<OutputValues>{ones, none},
                  "sgd", {1.0f}, /*fused=*/true);
      // Keys 4 and 5 get the rows of 0 and 1, which were used least recently: 2 and 3 are in use.
      std::vector<bool> only_reads(2, false);
      only_reads[reader] = true;
      const ContractLookup all = lookup_of({{0}, {1}, {2}, {3}, {4}, {5}, {0, 4, 4}, {5, 1}});
      group.Forward(of_ranks(lookup_of({{2, 4}, {5, 3}}), all), true, {}, only_reads);
      ASSERT_TRUE(group.status(reader).ok()) << group.status(reader).message();
      std::vector<float> expected;
      const auto value = [&](int64_t key, size_t c) {
        return initial.at(key)[c] - (key == 2 || key == 3 ? 1.0f : 0.0f);
      };
      for (const ReferenceBag& bag : all.bags) {
        for (size_t c = 0; c < 2; ++c) {
          float sum = 0.0f;
          for (const int64_t key : bag.ids) sum += value(key, c);
          expected.push_back(sum);
        }
      }
      ASSERT_EQ(group.outputs(reader)[0].size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(group.outputs(reader)[0][i], expected[i], 1e-6) << "number " << i;
      }
    }
  }
}

// The step that admits an id does so before ranks that only read get its row.
TEST_P(RanksContract, ARankThatReadsSeesTheIdsThatTheStepAdmits) {
  InlineExecutor executor;
  TableOptions options = ContractOptions("admitting", 1);
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 2;
  options.admission.default_value = 9.0f;
  for (const int reader : {0, 1}) {
    ContractRanks group(GetParam(), executor, 2, {options}, {ExchangeMode::kRows});
    const ContractBatch trains = {SumOf(0, {{4, 4, 5}})};
    const ContractBatch reads = {SumOf(0, {{4}, {5}, {6}})};
    std::vector<ContractBatch> batches(2, trains);
    batches[reader] = reads;
    std::vector<bool> only_reads(2, false);
    only_reads[reader] = true;
    group.Forward(batches, true, {}, only_reads);
    ASSERT_TRUE(group.status(reader).ok()) << group.status(reader).message();
    ContractRanks admitted(GetParam(), executor, 2, {ContractOptions("admitting", 1)}, {ExchangeMode::kRows});
    EXPECT_EQ(group.outputs(reader)[0], (std::vector<float>{admitted.Rows(0, {4}).at(4)[0], 9.0f, 9.0f}));
  }
}

// Sizes that do not fit the exchange: nothing may be read beyond what is there, and no id be left without a
// gradient.
TEST_P(RanksContract, DamagedRequestsAreRefused) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 1, {ContractOptions("rows", 1), ContractOptions("sums", 1)},
                      {ExchangeMode::kRows, ExchangeMode::kSums});
  ContractLookup summed = SumOf(1, {{5, 6, 7}});
  summed.spec.keeps_bags = true;
  group.Forward({{SumOf(0, {{5, 6, 7}}), summed}});
  ASSERT_TRUE(group.status(0).ok()) << group.status(0).message();
  const std::vector<int64_t> good = group.TakeSentWords()[0][0];
  // The header, two entries of four words, three ids, three ids, and the length of a sum.
  ASSERT_EQ(good.size(), 4u + 8u + 7u);
  ASSERT_EQ(group.Serve(0, {good}).code(), StatusCode::kOk);
  EXPECT_EQ(group.served(0).trained_rows(1), 3);
  constexpr size_t kNumbersOfRows = 7;
  constexpr size_t kNumbersOfSums = 11;
  constexpr size_t kLengths = 18;
  ASSERT_EQ(good[kNumbersOfRows], 0);
  ASSERT_EQ(good[kNumbersOfSums], 1);
  ASSERT_EQ(good[kLengths], 3);

  const auto expect = [&](const std::vector<int64_t>& words, const char* what) {
    SCOPED_TRACE(what);
    ExpectNames(
        group.Serve(0, {words}), StatusCode::kInternal,
        {"On rank 0: a request of " + std::to_string(words.size() - 4) + " words for 2 tables is damaged"});
    for (int t = 0; t < 2; ++t) EXPECT_EQ(group.served(0).trained_rows(t), 0);
  };
  const int64_t one_count = int64_t{1} << 32;
  std::vector<int64_t> words = good;
  words[kNumbersOfSums] = 0;
  words.pop_back();
  expect(words, "ids of sums without lengths");
  words = good;
  words[kLengths] = 2;
  expect(words, "a length that leaves an id");
  words[kLengths] = 4;
  expect(words, "a length beyond the ids");
  words[kLengths] = -3;
  expect(words, "a negative length");
  words = good;
  words[kNumbersOfSums] = 3 * one_count + 1;
  words.insert(words.end(), {one_count + 1, 1});
  expect(words, "counts of ids of sums");
  words = good;
  words[kNumbersOfRows] = 1;
  words.insert(words.begin() + 15, 3);
  expect(words, "lengths for a table of rows");
}

TEST_P(RanksContract, RanksThatExchangeRowsAndSumsDisagree) {
  InlineExecutor executor;
  const std::vector<TableOptions> table = {ContractOptions("table", 1)};
  ContractRanks rows(GetParam(), executor, 1, table, {ExchangeMode::kRows});
  ContractRanks sums(GetParam(), executor, 1, table, {ExchangeMode::kSums});
  ContractLookup lookup = SumOf(0, {{5, 6, 7}});
  lookup.spec.keeps_bags = true;
  rows.Forward({{lookup}});
  sums.Forward({{lookup}});
  ExpectNames(sums.Serve(0, {rows.TakeSentWords()[0][0]}), StatusCode::kFailedPrecondition,
              {"Ranks disagree about embedding variable 'table'", "exchanged as sums"});
  ExpectNames(rows.Serve(0, {sums.TakeSentWords()[0][0]}), StatusCode::kFailedPrecondition,
              {"Ranks disagree about embedding variable 'table'", "exchanged as rows"});
}

TEST_P(RanksContract, DivisionRoundsOnce) {
  InlineExecutor executor;
  EngineMemory& memory = *GetParam().memory;
  const EngineContext context{executor, memory.stream()};
  std::vector<float> values = {0.0f, -0.0f, 1.0f, -5.0f, 1e-45f, 3.4e38f, INFINITY};
  for (int i = 0; i < 500; ++i) values.push_back(std::sin(static_cast<float>(i)));
  const auto n = static_cast<int64_t>(values.size());
  for (const float divisor : {1.0f, 2.0f, 3.0f, 7.0f}) {
    std::vector<float> expected;
    for (const float value : values) expected.push_back(value / divisor);
    EngineArray<float> given(memory, values);
    EngineArray<float> quotients = EngineArray<float>::Unwritten(memory, n);
    ASSERT_TRUE(GetParam().engine->Divide(context, given.data(), n, divisor, quotients.data()).ok());
    EXPECT_EQ(quotients.Read(), expected);
    EXPECT_EQ(given.Read(), values);
    ASSERT_TRUE(GetParam().engine->Divide(context, given.data(), n, divisor, given.data()).ok());
    EXPECT_EQ(given.Read(), expected);
    ASSERT_TRUE(GetParam().engine->Divide(context, nullptr, 0, divisor, nullptr).ok());
  }
}

TEST_P(RanksContract, GradientsMayBeSentInSixteenBits) {
  for (const GradientFormat format : {GradientFormat::kFloat16, GradientFormat::kBfloat16}) {
    InlineExecutor executor;
    ContractRanks group(GetParam(), executor, 2, {ContractOptions("table", 1)}, {ExchangeMode::kRows});
    const ValuesByKey before = group.Rows(0, {4, 5});
    group.Forward({{SumOf(0, {{4}, {5}})}, {SumOf(0, {{5}})}});
    // 0.5 and 2 are exact in both formats; a third is rounded.
    group.Train({{{0.5f, 1.0f / 3}}, {{2.0f}}}, "sgd", {1.0f}, /*fused=*/true, format);
    const ValuesByKey after = group.Rows(0, {4, 5});
    EXPECT_EQ(after.at(4)[0], before.at(4)[0] - 0.5f);
    EXPECT_NEAR(after.at(5)[0], before.at(5)[0] - 2.0f - 1.0f / 3, 2e-3);
    EXPECT_NE(after.at(5)[0], before.at(5)[0] - (2.0f + 1.0f / 3));
  }
}

}  // namespace
}  // namespace sok
