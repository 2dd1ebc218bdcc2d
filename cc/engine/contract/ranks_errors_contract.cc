// Groups over ranks: the same errors on all ranks, and nothing changed.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/contract/contract_ranks.h"
#include "cc/engine/contract/sharded_tables.h"
#include "cc/engine/contract/suites.h"
#include "cc/engine/contract/training_reference.h"

namespace sok {
namespace {

TEST_P(RanksContract, AnErrorOfOneRankReachesAllRanksAndChangesNothing) {
  InlineExecutor executor;
  const ShardedTables tables = TablesOfAllPlacements(3);
  ContractRanks group(GetParam(), executor, 3, tables.options, tables.modes);
  const std::vector<ContractBatch> batches = RandomBatches(tables, 3, 2);
  group.Forward(batches, true, {OkStatus(), InvalidArgument("what rank 1 found"), OkStatus()});
  for (int r = 0; r < 3; ++r) {
    ExpectNames(group.status(r), StatusCode::kInvalidArgument, {"On rank 1: what rank 1 found"});
    for (size_t t = 0; t < 4; ++t) EXPECT_EQ(group.table(r, t).Describe().rows, 0);
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
    ExpectNames(group.status(r), StatusCode::kResourceExhausted,
                {"On rank 0: Embedding variable 'bounded' is full", "at most 2"});
  }
}

TEST_P(RanksContract, AKeyThatATableDoesNotHaveIsNamedOnEveryRank) {
  InlineExecutor executor;
  const ShardedTables tables = TablesOfAllPlacements(3);
  ContractRanks group(GetParam(), executor, 3, tables.options, tables.modes);
  const std::vector<ContractBatch> batches = RandomBatches(tables, 3, 2);
  std::vector<int64_t> keys = {kShardedKeys, -1, kShardedKeys + 1, INT64_MAX, INT64_MIN};
  if (GetParam().is_slowest) keys.resize(2);
  for (size_t t = 0; t < tables.options.size(); ++t) {
    if (tables.options[t].use_hashtable) continue;
    for (const int64_t key : keys) {
      std::vector<ContractBatch> unknown = batches;
      for (ContractLookup& lookup : unknown[2]) {
        if (lookup.spec.table != static_cast<int>(t)) continue;
        lookup = SumOf(static_cast<int>(t), {{5, key}});
        lookup.spec.keeps_bags = true;
      }
      for (const bool training : {true, false}) {
        group.Forward(unknown, training);
        for (int r = 0; r < 3; ++r) {
          ExpectNames(group.status(r), StatusCode::kInvalidArgument,
                      {"'table" + std::to_string(t) + "'", std::to_string(key), "[0, 57)"});
        }
      }
    }
  }
}

// The last of three ranks has another table.
TEST_P(RanksContract, BothOfTwoTablesThatDifferAreDescribed) {
  InlineExecutor executor;
  const std::vector<ContractBatch> batches(3, {SumOf(0, {{1, 2, 3}})});
  const auto expect = [&](const TableOptions& of_last, const std::string& text,
                          const std::string& text_of_last) {
    ContractRanks group(GetParam(), executor, 3, {ContractOptions("users", 4)}, {ExchangeMode::kRows});
    ContractRanks other(GetParam(), executor, 3, {of_last}, {ExchangeMode::kRows});
    group.SwapRank(2, &other);
    group.Forward(batches);
    for (int r = 0; r < 3; ++r) {
      ExpectNames(group.status(r), StatusCode::kFailedPrecondition,
                  {"Ranks disagree about embedding variable 'users'", "; rank ", text, text_of_last});
    }
  };
  const TableOptions plain = ContractOptions("users", 4);
  TableOptions other = plain;
  other.dim = 8;
  expect(other, "dim 4", "dim 8");
  other = plain;
  other.key_dtype = "int32";
  expect(other, "hashed int64 keys", "hashed int32 keys");
  expect(ContractOptions("users", 4, /*capacity=*/77), "no bound", "capacity 77");
  other = plain;
  other.initializer.seed = 5;
  expect(other, "of seed " + std::to_string(plain.initializer.seed), "of seed 5");
  other = plain;
  other.placement = Placement::OneRank(1);
  expect(other, "no bound", "placed as one_rank:1");
}

TEST_P(RanksContract, BothOfTwoOptimizersThatDifferAreNamed) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 3, {ContractOptions("users", 1)}, {ExchangeMode::kRows});
  const std::vector<ContractBatch> batches(3, {SumOf(0, {{1, 2, 3}})});
  const auto no_rows = EngineArray<int64_t>::Unwritten(*GetParam().memory, 0);
  const auto no_gradients = EngineArray<float>::Unwritten(*GetParam().memory, 0);
  const auto step = [&](int rank, const std::string& optimizer) {
    return group.table(rank, 0).ApplyGradients(group.context(), optimizer, SampleHyper(optimizer, 0),
                                               no_rows.view(), no_gradients.data(), /*distinct=*/true);
  };
  // A rank that has trained agrees with ranks that have not trained yet.
  ASSERT_TRUE(step(0, "sgd").ok());
  group.Forward(batches);
  for (int r = 0; r < 3; ++r) ASSERT_TRUE(group.status(r).ok()) << group.status(r).message();
  ASSERT_TRUE(step(1, "sgd").ok());
  ASSERT_TRUE(step(2, "adagrad").ok());
  group.Forward(batches);
  for (int r = 0; r < 3; ++r) {
    ExpectNames(group.status(r), StatusCode::kFailedPrecondition,
                {"trained by 'sgd'", "trained by 'adagrad'"});
  }
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

// Rank 1 continues with the step of another session.
TEST_P(RanksContract, GradientsOfAnotherStepAreRefused) {
  InlineExecutor executor;
  const std::vector<TableOptions> options = {ContractOptions("table", 2)};
  for (const bool fused : {false, true}) {
    ContractRanks group(GetParam(), executor, 2, options, {ExchangeMode::kRows});
    ContractRanks other(GetParam(), executor, 2, options, {ExchangeMode::kRows});
    const std::vector<ContractBatch> batches(2, {SumOf(0, {{1, 2, 3}})});
    group.Forward(batches);
    other.Forward(batches);
    group.SwapRank(1, &other);
    const std::vector<OutputValues> gradients(2, {{1.0f, 1.0f}});
    group.Train(gradients, "sgd", {0.5f}, fused);
    for (int r = 0; r < 2; ++r) {
      ExpectNames(group.status(r), StatusCode::kFailedPrecondition,
                  {"rank " + std::to_string(1 - r) + " sent the gradients of another step"});
      EXPECT_EQ(group.table(r, 0).Describe().steps, 0);
    }
  }
}

TEST_P(RanksContract, ABadStepOfOneTableChangesNoTableOfItsRank) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 2, {ContractOptions("good", 1), ContractOptions("bad", 1)},
                      {ExchangeMode::kRows, ExchangeMode::kRows});
  const std::vector<ContractBatch> batches(2, {SumOf(0, {{1, 2}}), SumOf(1, {{1, 2}})});
  const auto contents = [&](int rank) {
    return std::vector<TableContents>{ContentsOf(&group.table(rank, 0), group.context()),
                                      ContentsOf(&group.table(rank, 1), group.context())};
  };
  group.Forward(batches);
  const std::vector<TableContents> before[] = {contents(0), contents(1)};
  const std::vector<OutputValues> gradients(2, {{1.0f}, {1.0f}});
  group.Train(gradients, "sgd", {std::nanf("")}, /*fused=*/true);
  for (int r = 0; r < 2; ++r) {
    ExpectNames(group.status(r), StatusCode::kInvalidArgument, {"nan"});
    EXPECT_TRUE(contents(r) == before[r]) << "rank " << r;
  }
  // The second table of rank 1 has another optimizer.
  const auto no_rows = EngineArray<int64_t>::Unwritten(*GetParam().memory, 0);
  const auto no_gradients = EngineArray<float>::Unwritten(*GetParam().memory, 0);
  group.Forward(batches);
  ASSERT_TRUE(group.table(1, 1)
                  .ApplyGradients(group.context(), "adagrad", SampleHyper("adagrad", 0), no_rows.view(),
                                  no_gradients.data(), /*distinct=*/true)
                  .ok());
  const std::vector<TableContents> of_rank_1 = contents(1);
  group.Train(gradients, "sgd", {0.5f}, /*fused=*/true);
  EXPECT_TRUE(group.status(0).ok()) << group.status(0).message();
  ExpectNames(group.status(1), StatusCode::kFailedPrecondition, {"'bad'", "sgd", "adagrad"});
  EXPECT_TRUE(contents(1) == of_rank_1);
  EXPECT_EQ(group.table(1, 0).Describe().optimizer, "");
}

TEST_P(RanksContract, MessagesOfTooFewRanksAreRefused) {
  InlineExecutor executor;
  ContractRanks group(GetParam(), executor, 2, {ContractOptions("table", 1)}, {ExchangeMode::kRows});
  const std::vector<ContractBatch> batches(2, {SumOf(0, {{1, 2, 3}})});
  const std::vector<OutputValues> gradients(2, {{1.0f}});
  group.Forward(batches);
  group.LoseMessage(0);
  group.Combine(0);
  EXPECT_EQ(group.status(0).code(), StatusCode::kInternal);
  EXPECT_EQ(group.Reduce(0, gradients[0]).code(), StatusCode::kInternal);
  group.Forward(batches);
  group.Train(gradients, "sgd", {1.0f}, /*fused=*/true);
  group.LoseMessage(0);
  for (const bool fused : {false, true}) {
    EXPECT_EQ(group.TrainOn(0, "sgd", {1.0f}, fused).code(), StatusCode::kInternal);
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
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(group.Serve(0, {{good.begin(), good.begin() + static_cast<int64_t>(size)}}).code(),
              StatusCode::kInternal)
        << size << " words";
  }
  constexpr size_t kIds = 6;
  const std::pair<size_t, int64_t> damages[] = {{0, good[0] + 1},
                                                {1, -1},
                                                {1, 99},
                                                {2, -5},
                                                {2, INT64_MAX},
                                                {kIds, -1},
                                                {kIds, 4},
                                                {kIds, INT64_MAX},
                                                {kNumbersOfRows, -1},
                                                {kNumbersOfRows, INT64_MAX},
                                                {kNumbersOfRows, INT64_MIN}};
  for (const auto& [word, value] : damages) {
    std::vector<int64_t> damaged = good;
    damaged[word] = value;
    EXPECT_EQ(group.Serve(0, {damaged}).code(), StatusCode::kInternal) << "word " << word << " is " << value;
  }
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
  words = good;
  words[kNumbersOfSums] = 2;
  words[kLengths] = 3;
  EXPECT_EQ(group.Serve(0, {words}).code(), StatusCode::kInternal) << "a length of 0";
}

// Counts, two to a word, of a table that counts lookups: all are positive.
TEST_P(RanksContract, DamagedCountsAreRefused) {
  InlineExecutor executor;
  TableOptions options = ContractOptions("counted", 1);
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 2;
  ContractRanks group(GetParam(), executor, 1, {options}, {ExchangeMode::kRows});
  group.Forward({{SumOf(0, {{5, 6}})}});
  ASSERT_TRUE(group.status(0).ok()) << group.status(0).message();
  const std::vector<int64_t> good = group.TakeSentWords()[0][0];
  // The header, an entry of four words, two ids, and their counts.
  ASSERT_EQ(good.size(), 4u + 4u + 2u + 1u);
  const int64_t second = int64_t{1} << 32;
  ASSERT_EQ(good.back(), second + 1);
  const auto serve = [&](int64_t counts) {
    std::vector<int64_t> words = good;
    words.back() = counts;
    return group.Serve(0, {words}).code();
  };
  EXPECT_EQ(serve(second + 1), StatusCode::kOk);
  EXPECT_EQ(serve(2), StatusCode::kInternal);
  EXPECT_EQ(serve(-second + 3), StatusCode::kInternal);
}

}  // namespace
}  // namespace sok
