// Groups over ranks: gradients of weights, messages, ranks that only read, erased rows.
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/contract/contract_ranks.h"
#include "cc/engine/contract/sharded_tables.h"
#include "cc/engine/contract/suites.h"

namespace sok {
namespace {

TEST_P(RanksContract, GradientsOfWeightsEqualOneRank) {
  for (const int ranks : {2, 3}) {
    InlineExecutor executor;
    const ShardedTables tables = TablesOfAllPlacements(ranks);
    ContractRanks group(GetParam(), executor, ranks, tables.options, tables.modes);
    const std::vector<ContractBatch> batches = RandomBatches(tables, ranks, 5, GetParam().is_slow ? 5 : 20);
    const std::vector<OutputValues> gradients = RandomGradients(tables, batches, 3);
    std::vector<TableOptions> of_one;
    for (const TableOptions& options : tables.options) of_one.push_back(InOneProcess(options, ranks));
    group.Forward(batches);
    for (int r = 0; r < ranks; ++r) {
      ContractGroup one(GetParam(), executor, of_one);
      ASSERT_TRUE(one.Lookup(batches[r]).ok());
      OutputValues expected;
      OutputValues actual;
      ASSERT_TRUE(one.WeightGradients(gradients[r], &expected).ok());
      ASSERT_TRUE(group.WeightGradients(r, gradients[r], &actual).ok());
      for (size_t l = 0; l < expected.size(); ++l) {
        if (!batches[r][l].spec.weighted) continue;
        EXPECT_EQ(actual[l], expected[l]) << "rank " << r << ", lookup " << l;
      }
    }
  }
}

// The bytes of a lookup of a table by key that `rank` sends over the network, in both directions, by the
// layout of the messages.
int64_t BytesOf(const ContractLookup& lookup, int64_t dim, int rank, int ranks, ExchangeMode mode,
                bool counts) {
  int64_t bytes = 0;
  for (int owner = 0; owner < ranks; ++owner) {
    if (owner == rank) continue;
    int64_t occurrences = 0;
    int64_t bags = 0;
    std::set<int64_t> distinct;
    for (const ReferenceBag& bag : lookup.bags) {
      const int64_t before = occurrences;
      for (const int64_t id : bag.ids) {
        if (static_cast<uint64_t>(id) % static_cast<uint64_t>(ranks) != static_cast<uint64_t>(owner))
          continue;
        ++occurrences;
        distinct.insert(id);
      }
      bags += occurrences > before ? 1 : 0;
    }
    const bool rows = mode == ExchangeMode::kRows;
    const int64_t ids = rows ? static_cast<int64_t>(distinct.size()) : occurrences;
    const int64_t answers = rows ? ids : bags;
    const int64_t numbers = rows ? (counts ? ids : 0) : answers;
    bytes += 8 * (4 + ids + (numbers + 1) / 2) + 2 * answers * dim * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

TEST_P(RanksContract, BytesSentFollowFromTheLayoutOfMessages) {
  InlineExecutor executor;
  ShardedTables tables;
  tables.Add(PlacedOptions(4));
  tables.Add(PlacedOptions(7), ExchangeMode::kSums);
  TableOptions counter = PlacedOptions(1);
  counter.admission.kind = Admission::Kind::kCounter;
  counter.admission.filter_freq = 4;
  tables.Add(counter);
  for (const int ranks : {1, 2, 3}) {
    ContractRanks group(GetParam(), executor, ranks, tables.options, tables.modes);
    std::vector<ContractBatch> batches(static_cast<size_t>(ranks));
    std::vector<OutputValues> gradients(batches.size());
    std::vector<int64_t> bytes(3);
    for (int r = 0; r < ranks; ++r) {
      for (int t = 0; t < 3; ++t) {
        ContractLookup lookup = SumOf(t, {{1, 2, 3, 2}, {}, {-7 + r, 2}, {INT64_MIN, INT64_MAX, 3}});
        lookup.spec.keeps_bags = true;
        bytes[t] += BytesOf(lookup, tables.options[t].dim, r, ranks, tables.modes[t], t == 2);
        batches[r].push_back(std::move(lookup));
      }
    }
    group.Forward(batches);
    group.Train(RandomGradients(tables, batches, 1), "sgd", {0.5f}, /*fused=*/true);
    group.Forward(batches, /*training=*/false);  // is not counted
    for (size_t t = 0; t < 3; ++t) {
      int64_t sent = 0;
      for (int r = 0; r < ranks; ++r) sent += group.table(r, t).lookup_counts().bytes_sent;
      EXPECT_EQ(sent, bytes[t]) << "table " << t << ", " << ranks << " ranks";
    }
  }
}

TEST_P(RanksContract, AnswersOfReplicasStayOnTheRank) {
  InlineExecutor executor;
  for (const bool training : {false, true}) {
    ContractRanks group(GetParam(), executor, 3, {PlacedOptions(4, Placement::AllRanks())},
                        {ExchangeMode::kRows});
    const ContractBatch batch = {SumOf(0, {{1}, {2, 3}})};
    group.Forward({batch, batch, batch}, training);
    const auto sent = group.TakeSentWords();
    // Three headers, and three rows of four floats for the rank itself.
    for (int r = 0; r < 3; ++r) EXPECT_EQ(sent[1][r].size(), 3u * kHeaderWords + 3 * 4 / 2) << "rank " << r;
  }
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

// A gradient of an erased row is dropped, also if another key has the row by then.
TEST_P(RanksContract, RowsErasedSinceTheLookupAreNotTrained) {
  for (const bool fused : {false, true}) {
    InlineExecutor executor;
    ContractRanks group(GetParam(), executor, 2, {ContractOptions("table", 1)}, {ExchangeMode::kRows});
    const ContractBatch batch = {SumOf(0, {{0}, {1}, {2}})};
    const ValuesByKey initial = group.Rows(0, {0, 1, 2, 4});
    group.Forward({batch, batch});
    const EngineArray<int64_t> erased_key(*GetParam().memory, {2});
    const EngineArray<int64_t> new_key(*GetParam().memory, {4});
    const EngineArray<float> new_row(*GetParam().memory, {10.0f});
    int64_t erased = 0;
    EngineTable& table = group.table(0, 0);
    ASSERT_TRUE(table.Erase(group.context(), erased_key.view(), &erased).ok());
    ASSERT_EQ(erased, 1);
    ASSERT_TRUE(table.Assign(group.context(), new_key.view(), new_row.data()).ok());
    const OutputValues ones = {{1.0f, 1.0f, 1.0f}};
    group.Train({ones, ones}, "sgd", {1.0f}, fused);
    const ValuesByKey rows = group.Rows(0, {0, 1, 2, 4});
    EXPECT_EQ(rows.at(0)[0], initial.at(0)[0] - 2.0f);
    EXPECT_EQ(rows.at(1)[0], initial.at(1)[0] - 2.0f);
    EXPECT_EQ(rows.at(2), initial.at(2));
    EXPECT_EQ(rows.at(4)[0], 10.0f);
  }
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

}  // namespace
}  // namespace sok
