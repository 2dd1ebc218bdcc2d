// Tables on ranks that processes look up in which are no ranks: the numbers of ranks of which one asks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/engine/contract/contract_batch.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/contract_ranks.h"
#include "cc/engine/contract/engine_case.h"
#include "cc/engine/contract/sharded_tables.h"
#include "cc/engine/contract/suites.h"
#include "cc/engine/contract/training_reference.h"

namespace sok {

// A group of an engine's tables on several ranks, which processes that are no ranks look up in: tables on
// parameter servers. Servers and askers are objects of one process.

class ContractServers {
 public:
  // `options` are those of the tables on one server; rank and number of ranks are filled in. Without initial
  // rows they are those of the askers' tables, unless `of_askers` has others.
  ContractServers(const EngineCase& engine, Executor& executor, int servers, int askers,
                  const std::vector<TableOptions>& options, std::vector<ExchangeMode> modes,
                  const std::vector<TableOptions>& of_askers = {});

  EngineContext context() { return EngineContext{executor_, engine_.memory->stream()}; }
  EngineTable& table(int server, size_t t) { return servers_[server].table(t); }
  EngineTable& table_of_asker(int asker, size_t t) { return askers_[asker].process.table(t); }
  const OutputValues& outputs(int asker) const { return askers_[asker].outputs; }

  // The forward pass of one asker: route, serve on all servers, combine. `error` is passed to Route.
  Status Forward(int asker, const ContractBatch& batch, bool training = true,
                 const Status& error = OkStatus());
  // The backward pass of an asker's last lookup, and a step of all tables on all servers: fused, or from sums
  // in memory. With `lookup_of`, the servers take the gradients for those of that asker's last lookup.
  // Returns the first error.
  Status Train(int asker, const OutputValues& gradients, const std::string& optimizer,
               const std::vector<float>& hyper, bool fused, GradientFormat format = GradientFormat::kFloat32,
               int lookup_of = -1);

 private:
  struct Asker {
    explicit Asker(ContractProcess made) : process(std::move(made)) {}

    ContractProcess process;
    std::unique_ptr<RoutedGroup> routed;
    std::vector<std::unique_ptr<ServedGroup>> served;  // by server
    ContractBatch batch;
    std::unique_ptr<BatchArrays> arrays;
    std::vector<EngineArray<int64_t>> replies;  // by server
    OutputValues outputs;
  };
  // The messages that one call writes.
  struct Outbox {
    EngineMemory* memory;
    std::vector<int64_t> sizes;
    std::unique_ptr<EngineArray<int64_t>> words;

    int64_t* operator()(Span<const int64_t> sizes_of_messages);
    std::vector<EngineArray<int64_t>> Messages() const;
  };

  Inbox RepliesTo(const Asker& asker) const;

  const EngineCase& engine_;
  Executor& executor_;
  std::vector<ExchangeMode> modes_;
  std::vector<ContractProcess> servers_;
  std::vector<Asker> askers_;
};

ContractServers::ContractServers(const EngineCase& engine, Executor& executor, int servers, int askers,
                                 const std::vector<TableOptions>& options, std::vector<ExchangeMode> modes,
                                 const std::vector<TableOptions>& of_askers)
    : engine_(engine), executor_(executor), modes_(std::move(modes)) {
  for (int s = 0; s < servers; ++s) servers_.emplace_back(engine, executor, options, s, servers);
  std::vector<TableOptions> described = of_askers.empty() ? options : of_askers;
  for (TableOptions& table : described) {
    table.initializer = {};
    table.initial_rows.clear();
  }
  for (int a = 0; a < askers; ++a) {
    askers_.emplace_back(ContractProcess(engine, executor, described, kNoRank, servers));
  }
}

int64_t* ContractServers::Outbox::operator()(Span<const int64_t> sizes_of_messages) {
  sizes.assign(sizes_of_messages.begin(), sizes_of_messages.end());
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  words = std::make_unique<EngineArray<int64_t>>(EngineArray<int64_t>::Unwritten(*memory, total));
  return words->data();
}

std::vector<EngineArray<int64_t>> ContractServers::Outbox::Messages() const {
  const std::vector<int64_t> all = words->Read();
  std::vector<EngineArray<int64_t>> messages;
  auto begin = all.begin();
  for (const int64_t size : sizes) {
    messages.emplace_back(*memory, std::vector<int64_t>(begin, begin + size));
    begin += size;
  }
  EXPECT_EQ(begin, all.end());
  return messages;
}

Inbox ContractServers::RepliesTo(const Asker& asker) const {
  Inbox inbox(kNoRank);
  for (const EngineArray<int64_t>& reply : asker.replies) inbox.Add(reply.view());
  return inbox;
}

Status ContractServers::Forward(int a, const ContractBatch& batch, bool training, const Status& error) {
  Asker& asker = askers_[a];
  asker.batch = batch;
  asker.arrays = std::make_unique<BatchArrays>(*engine_.memory, batch);
  asker.routed = engine_.engine->NewRoutedGroup();
  Outbox requests{engine_.memory.get(), {}, nullptr};
  SOK_RETURN_IF_ERROR(engine_.engine->Route(
      context(), {asker.process.tables(), asker.arrays->specs(), asker.arrays->inputs(), training}, modes_,
      error, asker.routed.get(), asker.process.scratch(), requests));
  const std::vector<EngineArray<int64_t>> to_servers = requests.Messages();
  EXPECT_EQ(to_servers.size(), servers_.size());
  asker.served.clear();
  asker.replies.clear();
  for (size_t s = 0; s < servers_.size(); ++s) {
    Inbox inbox(kNoRank);
    inbox.Add(to_servers[s].view());
    asker.served.push_back(engine_.engine->NewServedGroup());
    Outbox reply{engine_.memory.get(), {}, nullptr};
    SOK_RETURN_IF_ERROR(engine_.engine->Serve(context(), servers_[s].tables(), modes_, inbox,
                                              asker.served.back().get(), servers_[s].scratch(), reply));
    EXPECT_EQ(reply.sizes.size(), 1u);
    asker.replies.push_back(std::move(reply.Messages()[0]));
  }
  return asker.process.Combine(*asker.routed, RepliesTo(asker), batch, &asker.outputs);
}

Status ContractServers::Train(int a, const OutputValues& gradients, const std::string& optimizer,
                              const std::vector<float>& hyper, bool fused, GradientFormat format,
                              int lookup_of) {
  Asker& asker = askers_[a];
  std::vector<EngineArray<float>> arrays;
  const std::vector<GradientRows> rows = asker.process.Upload(asker.batch, gradients, &arrays);
  Outbox outbox{engine_.memory.get(), {}, nullptr};
  SOK_RETURN_IF_ERROR(
      engine_.engine->Reduce(context(), *asker.routed, rows, RepliesTo(asker), format, outbox));
  const std::vector<EngineArray<int64_t>> messages = outbox.Messages();
  const Asker& looked_up = askers_[lookup_of < 0 ? a : lookup_of];
  for (size_t s = 0; s < servers_.size(); ++s) {
    Inbox inbox(kNoRank);
    inbox.Add(messages[s].view());
    SOK_RETURN_IF_ERROR(servers_[s].TrainOn(*looked_up.served[s], inbox, optimizer, hyper, fused));
  }
  return OkStatus();
}

namespace {

// Without replicas, which only ranks have.
ShardedTables OnServers(const ShardedTables& all) {
  ShardedTables tables;
  for (size_t t = 0; t < all.options.size(); ++t) {
    if (!all.options[t].placement.is_replicated()) tables.Add(all.options[t], all.modes[t]);
  }
  return tables;
}

// The batch of one asker.
ContractBatch RandomBatch(const ShardedTables& tables, uint32_t seed, int64_t bags) {
  return RandomBatches(tables, 1, seed, bags)[0];
}
OutputValues RandomGradientsOf(const ShardedTables& tables, const ContractBatch& batch, uint32_t seed) {
  return RandomGradients(tables, {batch}, seed)[0];
}

// Lookups without ids, in the same tables.
ContractBatch WithoutBags(ContractBatch batch) {
  for (ContractLookup& lookup : batch) lookup.bags.clear();
  return batch;
}

// Adds all counts but the bytes to totals[0, 4).
void AddCounts(const LookupCounts& counts, int64_t* totals) {
  totals[0] += counts.ids;
  totals[1] += counts.distinct_ids;
  totals[2] += counts.admitted_ids;
  totals[3] += counts.filtered_ids;
}

// Steps of an asker on servers and of ranks of which rank 0 has the same batches and the others have none.
// One of the batches has `most_bags` bags.
void ExpectTheBitsOfRanks(const EngineCase& engine, int ranks, const ShardedTables& tables,
                          const std::string& optimizer, int64_t most_bags) {
  SCOPED_TRACE(std::to_string(ranks) + " ranks, " + optimizer);
  ThreadPool executor(3, /*min_block_ns=*/0);
  ContractRanks expected(engine, executor, ranks, tables.options, tables.modes);
  ContractServers servers(engine, executor, ranks, /*askers=*/1, tables.options, tables.modes);
  const uint32_t steps = engine.is_slow ? 3 : 6;
  for (uint32_t step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const bool training = step != 4;
    const ContractBatch batch = RandomBatch(tables, step, step == 2 ? most_bags : 3);
    std::vector<ContractBatch> batches(static_cast<size_t>(ranks), WithoutBags(batch));
    batches[0] = batch;
    expected.Forward(batches, training);
    const Status status = servers.Forward(0, batch, training);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(servers.outputs(0), expected.outputs(0));
    if (!training) continue;
    std::vector<OutputValues> gradients = RandomGradients(tables, batches, step);
    const auto format = static_cast<GradientFormat>(step % 3);
    const std::vector<float> hyper = SampleHyper(optimizer, step);
    expected.Train(gradients, optimizer, hyper, /*fused=*/step % 2 == 0, format);
    const Status trained = servers.Train(0, gradients[0], optimizer, hyper, step % 2 == 1, format);
    ASSERT_TRUE(trained.ok()) << trained.message();
  }
  for (int r = 0; r < ranks; ++r) {
    for (size_t t = 0; t < tables.options.size(); ++t) {
      EXPECT_TRUE(ContentsOf(&servers.table(r, t), servers.context()) ==
                  ContentsOf(&expected.table(r, t), expected.context()))
          << "table " << t << " on rank " << r;
    }
  }
  for (size_t t = 0; t < tables.options.size(); ++t) {
    int64_t counts[4] = {};
    int64_t expected_counts[4] = {};
    for (int r = 0; r < ranks; ++r) {
      AddCounts(servers.table(r, t).lookup_counts(), counts);
      AddCounts(expected.table(r, t).lookup_counts(), expected_counts);
    }
    for (int i = 0; i < 4; ++i) EXPECT_EQ(counts[i], expected_counts[i]) << "count " << i;
    EXPECT_EQ(servers.table_of_asker(0, t).Describe().rows, 0);
  }
}

TEST_P(RanksContract, AnAskerOnServersHasTheBitsOfRanksOfWhichOneAsks) {
  for (const int ranks : GetParam().ranks) {
    const bool is_last = ranks == GetParam().ranks.back();
    if (GetParam().is_slow && ranks == 2) continue;
    const int64_t most_bags = GetParam().is_slow ? 3 : 200;
    for (const char* const optimizer : {"adagrad", "adam"}) {
      if (GetParam().is_slow && !is_last && std::string(optimizer) == "adam") continue;
      ASSERT_NO_FATAL_FAILURE(ExpectTheBitsOfRanks(GetParam(), ranks, OnServers(TablesOfAllPlacements(ranks)),
                                                   optimizer, most_bags));
    }
    if (GetParam().is_slow && !is_last) continue;
    // More bags need more rows than the tables hold.
    ASSERT_NO_FATAL_FAILURE(
        ExpectTheBitsOfRanks(GetParam(), ranks, OnServers(TablesOfAllPolicies()), "sgd", /*most_bags=*/3));
  }
}

// Three askers look up before the first of them trains, and train in another order: the numbers of one
// process with the same order of lookups and steps.
TEST_P(RanksContract, AskersTakeTurnsLikeSessionsOfOneProcess) {
  ThreadPool executor(3, /*min_block_ns=*/0);
  const ShardedTables tables = OnServers(TablesOfAllPlacements(2));
  ContractServers servers(GetParam(), executor, /*servers=*/2, /*askers=*/3, tables.options, tables.modes);
  std::vector<TableOptions> options;
  for (const TableOptions& table : tables.options) options.push_back(InOneProcess(table, 2));
  ContractGroup tables_of_one(GetParam(), executor, options);
  std::vector<ContractGroup> sessions;
  for (int a = 0; a < 3; ++a) sessions.emplace_back(GetParam(), executor, tables_of_one);
  for (uint32_t step = 0; step < (GetParam().is_slow ? 1 : 4); ++step) {
    std::vector<ContractBatch> batches;
    for (uint32_t a = 0; a < 3; ++a) {
      batches.push_back(RandomBatch(tables, 10 * step + 2 * a, 4));
      ASSERT_TRUE(servers.Forward(static_cast<int>(a), batches[a]).ok());
      ASSERT_TRUE(sessions[a].Lookup(batches[a]).ok());
      for (size_t l = 0; l < batches[a].size(); ++l) {
        const std::vector<float>& expected = sessions[a].outputs()[l];
        const std::vector<float>& actual = servers.outputs(static_cast<int>(a))[l];
        ASSERT_EQ(actual.size(), expected.size());
        for (size_t i = 0; i < actual.size(); ++i) {
          EXPECT_NEAR(actual[i], expected[i], 1e-4f * std::max(1.0f, std::abs(expected[i])));
        }
      }
    }
    for (const int a : {1, 2, 0}) {
      const OutputValues gradients = RandomGradientsOf(tables, batches[a], step);
      const std::vector<float> hyper = SampleHyper("adagrad", step);
      ASSERT_TRUE(servers.Train(a, gradients, "adagrad", hyper, step % 2 == 0).ok());
      ASSERT_TRUE(sessions[a].BackwardAndApply(gradients, "adagrad", hyper).ok());
    }
  }
  for (size_t t = 0; t < tables.options.size(); ++t) {
    int64_t rows = 0;
    for (int s = 0; s < 2; ++s) {
      EXPECT_EQ(servers.table(s, t).Describe().steps, tables_of_one.table(t).Describe().steps);
      rows += servers.table(s, t).Describe().rows;
    }
    EXPECT_EQ(rows, tables_of_one.table(t).Describe().rows);
  }
}

TEST_P(RanksContract, ServersCountWhatAskersSendAndGet) {
  InlineExecutor executor;
  ShardedTables tables;
  tables.Add(PlacedOptions(4));
  tables.Add(PlacedOptions(6), ExchangeMode::kSums);
  ContractServers servers(GetParam(), executor, /*servers=*/3, /*askers=*/2, tables.options, tables.modes);
  // Seven ids, of which five are distinct; one bag on each server.
  const std::vector<std::vector<int64_t>> bags = {{1, 2, 3, 2}, {}, {-7, 2, 6}};
  ContractBatch batch = {SumOf(0, bags), SumOf(1, {{3}, {}, {1, 4, 2}})};
  for (ContractLookup& lookup : batch) lookup.spec.keeps_bags = true;
  const GradientFormat format = GradientFormat::kFloat16;
  for (const int asker : {0, 1}) {
    ASSERT_TRUE(servers.Forward(asker, batch).ok());
    const OutputValues gradients = RandomGradientsOf(tables, batch, 1);
    ASSERT_TRUE(servers.Train(asker, gradients, "sgd", {0.5f}, /*fused=*/asker == 0, format).ok());
    ASSERT_TRUE(servers.Forward(asker, batch, /*training=*/false).ok());  // is not counted
  }
  int64_t ids[2] = {};
  int64_t bytes[2] = {};
  for (int s = 0; s < 3; ++s) {
    for (size_t t = 0; t < 2; ++t) {
      ids[t] += servers.table(s, t).lookup_counts().ids;
      bytes[t] += servers.table(s, t).lookup_counts().bytes_sent;
    }
  }
  EXPECT_EQ(ids[0], 2 * 7);
  EXPECT_EQ(ids[1], 2 * 4);
  // Entries and ids, rows of 4 floats, and gradients in half as many bytes.
  EXPECT_EQ(bytes[0], 2 * (8 * (3 * 4 + 5) + 5 * 4 * (4 + 2)));
  // All occurrences, a sum for each server in three bags, and its length in a word of its own.
  EXPECT_EQ(bytes[1], 2 * (8 * (3 * 4 + 4 + 3) + 3 * 6 * (4 + 2)));
}

TEST_P(RanksContract, AnAskersErrorIsItsOwnAndChangesNothing) {
  InlineExecutor executor;
  const ShardedTables tables = OnServers(TablesOfAllPlacements(2));
  ContractServers servers(GetParam(), executor, 2, /*askers=*/2, tables.options, tables.modes);
  const ContractBatch batch = RandomBatch(tables, 2, 3);
  const Status status = servers.Forward(0, batch, /*training=*/true, InvalidArgument("what the asker found"));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "what the asker found");
  EXPECT_EQ(servers.table(0, 0).Describe().rows + servers.table(1, 0).Describe().rows, 0);
  EXPECT_TRUE(servers.Forward(1, batch).ok()) << "others go on";
  EXPECT_TRUE(servers.Forward(0, batch).ok()) << "as does the next lookup";
  // Gradients are those of the asker's own lookup.
  const OutputValues gradients = RandomGradientsOf(tables, batch, 1);
  ExpectNames(servers.Train(0, gradients, "sgd", {0.5f}, true, GradientFormat::kFloat32, /*lookup_of=*/1),
              StatusCode::kFailedPrecondition, {"another step"});
  EXPECT_TRUE(servers.Train(0, gradients, "sgd", {0.5f}, /*fused=*/true).ok());
}

TEST_P(RanksContract, AnErrorOfAServerNamesIt) {
  InlineExecutor executor;
  ContractServers servers(GetParam(), executor, 2, 1, {ContractOptions("bounded", 1, /*capacity=*/2)},
                          {ExchangeMode::kRows});
  ExpectNames(servers.Forward(0, {SumOf(0, {{1, 3, 5, 2}})}), StatusCode::kResourceExhausted,
              {"On rank 1: Embedding variable 'bounded' is full", "at most 2"});
}

TEST_P(RanksContract, AnAskerAndAServerCompareAllButInitialRows) {
  InlineExecutor executor;
  TableOptions given = ContractOptions("users", 4);
  GiveRows(3, &given);
  const ContractBatch batch = {SumOf(0, {{1, 2, 3}})};
  const auto lookup = [&](const TableOptions& of_asker) {
    ContractServers servers(GetParam(), executor, 2, 1, {given}, {ExchangeMode::kRows}, {of_asker});
    return servers.Forward(0, batch);
  };
  EXPECT_TRUE(lookup(ContractOptions("users", 4)).ok());
  TableOptions other = ContractOptions("users", 8);
  ExpectNames(lookup(other), StatusCode::kFailedPrecondition,
              {"Ranks disagree about embedding variable 'users': rank ", "dim 4",
               "; the process that asks has", "dim 8", "any initial values"});
  other = ContractOptions("users", 4);
  other.admission.kind = Admission::Kind::kCounter;
  ExpectNames(lookup(other), StatusCode::kFailedPrecondition, {"CounterFilter(0)"});
}

TEST_P(RanksContract, ATableThatOnlyDescribesTakesNoMemoryForRows) {
  InlineExecutor executor;
  TableOptions direct = ContractOptions("direct", 64, /*capacity=*/int64_t{1} << 40);
  direct.use_hashtable = false;
  TableOptions bloom = ContractOptions("bloom", 64);
  bloom.admission.kind = Admission::Kind::kBloom;
  bloom.admission.filter_freq = 2;
  bloom.admission.max_element_size = int64_t{1} << 40;
  TableOptions replicated = ContractOptions("replicated", 1);
  replicated.placement = Placement::AllRanks();
  const EngineContext context{executor, GetParam().memory->stream()};
  for (TableOptions options : {direct, bloom, replicated}) {
    options.rank = kNoRank;
    options.ranks = 4;
    const auto made = GetParam().engine->MakeTable(context, options);
    if (options.placement.is_replicated()) {
      ExpectNames(made.status(), StatusCode::kInvalidArgument, {"'replicated'", "only ranks"});
      continue;
    }
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made.value()->Describe().rows, 0);
    EXPECT_LT(made.value()->Describe().bytes, 1 << 20);
  }
}

}  // namespace
}  // namespace sok
