// Groups over ranks: the same numbers as one process gives for the batches of all ranks.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/thread_pool.h"
#include "cc/engine/contract/contract_ranks.h"
#include "cc/engine/contract/sharded_tables.h"
#include "cc/engine/contract/suites.h"
#include "cc/engine/contract/training_reference.h"

namespace sok {
namespace {

SOK_CONTRACT_SUITE(RanksContract);

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * std::max(1.0f, std::abs(expected[i]))) << "number " << i;
  }
}

struct RowOfTable {
  std::vector<float> record;
  std::vector<int64_t> columns;
};

std::map<int64_t, RowOfTable> RowsByKey(const TableContents& contents) {
  std::map<int64_t, RowOfTable> rows;
  const size_t n = contents.keys.size();
  for (size_t i = 0; i < n; ++i) {
    RowOfTable& row = rows[contents.keys[i]];
    const auto width = static_cast<int64_t>(contents.records.size() / n);
    const auto record = contents.records.begin() + static_cast<int64_t>(i) * width;
    row.record.assign(record, record + width);
    for (size_t c = i; c < contents.columns.size(); c += n) row.columns.push_back(contents.columns[c]);
  }
  return rows;
}

// The counts of ids that wait for admission.
std::map<int64_t, int64_t> WaitingOf(EngineTable& table, const EngineContext& context) {
  std::map<int64_t, int64_t> waiting;
  if (table.options().admission.kind != Admission::Kind::kCounter) return waiting;
  const auto held = table.Hold(context);
  const Status status = held.value()->ReadWaiting(RowSet::kAll, [&](const WaitingPiece& piece) {
    for (int64_t i = 0; i < piece.ids.size(); ++i) waiting[piece.ids[i]] = piece.counts[i];
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return waiting;
}

// The steps of a group over ranks, and of one process to which the batches of all ranks are one batch.
class BesideOneProcess {
 public:
  BesideOneProcess(const EngineCase& engine, Executor& executor, int ranks, ShardedTables tables)
      : tables_(std::move(tables)),
        group_(engine, executor, ranks, tables_.options, tables_.modes),
        one_(engine, executor, OptionsOfOne(ranks)),
        reader_(engine, executor, one_) {}

  ContractRanks& group() { return group_; }

  // Ranks whose only_reads[r], if any, is true read what the training of the others leaves.
  void Forward(const std::vector<ContractBatch>& batches, bool training,
               const std::vector<bool>& only_reads = {}) {
    group_.Forward(batches, training, {}, only_reads);
    ContractBatch all;
    const auto reads = [&](size_t r) { return !only_reads.empty() && only_reads[r]; };
    trains_.assign(batches.size(), training);
    for (size_t r = 0; r < batches.size(); ++r) {
      if (reads(r)) trains_[r] = false;
      if (!reads(r)) all.insert(all.end(), batches[r].begin(), batches[r].end());
    }
    ASSERT_TRUE(one_.Lookup(all, training).ok());
    size_t lookup = 0;
    for (size_t r = 0; r < batches.size(); ++r) {
      const int rank = static_cast<int>(r);
      ASSERT_TRUE(group_.status(rank).ok()) << group_.status(rank).message();
      if (reads(r)) {
        ASSERT_TRUE(reader_.Lookup(batches[r], /*training=*/false).ok());
      }
      for (size_t l = 0; l < batches[r].size(); ++l) {
        const std::vector<float>& expected = reads(r) ? reader_.outputs()[l] : one_.outputs()[lookup++];
        if (EvictsOfItsOwnRows(tables_.options[batches[r][l].spec.table])) continue;
        SCOPED_TRACE("rank " + std::to_string(r) + ", lookup " + std::to_string(l));
        ASSERT_NO_FATAL_FAILURE(ExpectNear(group_.outputs(rank)[l], expected, 1e-4f));
      }
    }
  }

  // A step with half of the gradients' sums.
  void Train(const std::vector<OutputValues>& gradients, const std::string& optimizer,
             const std::vector<float>& hyper, bool fused, GradientFormat format) {
    group_.Train(gradients, optimizer, hyper, fused, format, 2.0f);
    OutputValues halves;
    for (size_t r = 0; r < gradients.size(); ++r) {
      const Status& status = group_.status(static_cast<int>(r));
      ASSERT_TRUE(status.ok()) << status.message();
      if (!trains_[r]) continue;
      for (std::vector<float> half : gradients[r]) {
        for (float& value : half) value /= 2.0f;
        halves.push_back(std::move(half));
      }
    }
    ASSERT_TRUE(one_.BackwardAndApply(halves, optimizer, hyper).ok());
  }

  // Each rank has the rows that the placement gives it, replicas have the same bits, and all rows, waiting
  // ids and counts together are those of one process. Replicas that exact Adam trains agree up to rounding:
  // ranks bring rows up to date when they read them.
  void ExpectSameTables(float tolerance) {
    for (size_t t = 0; t < tables_.options.size(); ++t) {
      if (EvictsOfItsOwnRows(tables_.options[t])) continue;
      SCOPED_TRACE("table " + std::to_string(t));
      std::map<int64_t, RowOfTable> rows;
      std::map<int64_t, int64_t> waiting;
      TableContents of_rank_0;
      LookupCounts counts;
      for (int r = 0; r < group_.size(); ++r) {
        EngineTable& table = group_.table(r, t);
        const Placement& placement = table.options().placement;
        const TableContents contents = ContentsOf(&table, group_.context(), /*up_to_date=*/true);
        for (const int64_t key : contents.keys) {
          EXPECT_TRUE(placement.owners(group_.size()).Holds(r, key)) << key << " is on rank " << r;
        }
        if (r == 0) of_rank_0 = contents;
        if (placement.is_replicated()) {
          EXPECT_EQ(contents.keys, of_rank_0.keys) << "replica " << r;
          EXPECT_TRUE(contents == of_rank_0 || table.Describe().optimizer == "adam") << "replica " << r;
          ASSERT_NO_FATAL_FAILURE(ExpectNear(contents.records, of_rank_0.records, 1e-5f));
        }
        rows.merge(RowsByKey(contents));
        waiting.merge(WaitingOf(table, group_.context()));
        LookupCounts::Add(counts.ids, table.lookup_counts().ids);
        LookupCounts::Add(counts.distinct_ids, table.lookup_counts().distinct_ids);
        LookupCounts::Add(counts.admitted_ids, table.lookup_counts().admitted_ids);
        LookupCounts::Add(counts.filtered_ids, table.lookup_counts().filtered_ids);
      }
      const LookupCounts& expected_counts = one_.table(t).lookup_counts();
      EXPECT_EQ(counts.ids, expected_counts.ids);
      EXPECT_EQ(counts.distinct_ids, expected_counts.distinct_ids);
      EXPECT_EQ(counts.admitted_ids, expected_counts.admitted_ids);
      EXPECT_EQ(counts.filtered_ids, expected_counts.filtered_ids);
      EXPECT_EQ(expected_counts.bytes_sent, 0);
      EXPECT_EQ(waiting, WaitingOf(one_.table(t), one_.context()));
      const auto expected = RowsByKey(ContentsOf(&one_.table(t), one_.context(), /*up_to_date=*/true));
      ASSERT_EQ(rows.size(), expected.size());
      for (const auto& [key, row] : expected) {
        ASSERT_EQ(rows.count(key), 1u) << key;
        ASSERT_NO_FATAL_FAILURE(ExpectNear(rows[key].record, row.record, tolerance)) << key;
        EXPECT_EQ(rows[key].columns, row.columns) << key;
      }
    }
  }

 private:
  std::vector<TableOptions> OptionsOfOne(int ranks) const {
    std::vector<TableOptions> options;
    for (const TableOptions& table : tables_.options) options.push_back(InOneProcess(table, ranks));
    return options;
  }

  const ShardedTables tables_;
  ContractRanks group_;
  ContractGroup one_;
  ContractGroup reader_;  // on the tables of one_
  std::vector<bool> trains_;
};

// Steps of one optimizer: some ranks only read in some steps, and all in others. The third step has `bags`
// bags, and more on later ranks.
void TakeStepsBesideOneProcess(const EngineCase& engine, int ranks, const ShardedTables& tables,
                               const std::string& optimizer, int64_t bags) {
  SCOPED_TRACE(std::to_string(ranks) + " ranks, " + optimizer);
  ThreadPool executor(3, /*min_block_ns=*/0);
  BesideOneProcess both(engine, executor, ranks, tables);
  const uint32_t steps = engine.is_slow ? 3 : 6;
  for (uint32_t step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const auto batches = RandomBatches(tables, ranks, step, step == 2 ? bags : 1);
    std::vector<bool> only_reads(static_cast<size_t>(ranks), false);
    if (step % 3 == 2 && ranks > 1) only_reads[1] = true;
    ASSERT_NO_FATAL_FAILURE(both.Forward(batches, /*training=*/true, only_reads));
    ASSERT_NO_FATAL_FAILURE(both.Train(RandomGradients(tables, batches, step), optimizer,
                                       SampleHyper(optimizer, step), step % 2 == 1,
                                       GradientFormat::kFloat32));
    ASSERT_NO_FATAL_FAILURE(both.Forward(RandomBatches(tables, ranks, step + 50), /*training=*/false));
  }
  both.ExpectSameTables(1e-4f);
}

TEST_P(RanksContract, StepsOfTablesOfAllPlacementsEqualOneProcess) {
  for (const int ranks : GetParam().ranks) {
    for (const char* const optimizer : {"adagrad", "adam"}) {
      if (GetParam().is_slow && (ranks % 2 == 0) != (std::string(optimizer) == "adam")) continue;
      ASSERT_NO_FATAL_FAILURE(TakeStepsBesideOneProcess(GetParam(), ranks, TablesOfAllPlacements(ranks),
                                                        optimizer, GetParam().is_slow ? 4 : 300));
    }
  }
}

TEST_P(RanksContract, StepsOfTablesOfAllPoliciesEqualOneProcess) {
  for (const int ranks : GetParam().ranks) {
    if (GetParam().is_slow && ranks != GetParam().ranks.back()) continue;
    ASSERT_NO_FATAL_FAILURE(TakeStepsBesideOneProcess(GetParam(), ranks, TablesOfAllPolicies(), "sgd", 1));
  }
}

TEST_P(RanksContract, GradientsInSixteenBitsAreNearThoseInThirtyTwo) {
  const ShardedTables tables = TablesOfAllPlacements(3);
  for (const GradientFormat format : {GradientFormat::kFloat16, GradientFormat::kBfloat16}) {
    InlineExecutor executor;
    BesideOneProcess both(GetParam(), executor, 3, tables);
    const std::vector<ContractBatch> batches = RandomBatches(tables, 3, 8);
    ASSERT_NO_FATAL_FAILURE(both.Forward(batches, /*training=*/true));
    ASSERT_NO_FATAL_FAILURE(both.Train(RandomGradients(tables, batches, 8), "sgd", {0.5f},
                                       format == GradientFormat::kFloat16, format));
    both.ExpectSameTables(format == GradientFormat::kFloat16 ? 3e-3f : 2e-2f);
  }
}

// The contents of all tables of all ranks after steps with sums divided by `divisor`.
std::vector<TableContents> ContentsAfterSteps(const EngineCase& engine, Executor& executor,
                                              const std::string& optimizer, bool fused, float divisor) {
  const ShardedTables tables = TablesOfAllPlacements(2);
  ContractRanks group(engine, executor, 2, tables.options, tables.modes);
  std::vector<TableContents> contents;
  // The fourth step has no bags on any rank.
  for (uint32_t step = engine.is_slow ? 2 : 0; step < 4; ++step) {
    const std::vector<ContractBatch> batches = RandomBatches(tables, 2, step, engine.is_slow ? 2 : 30);
    group.Forward(batches);
    group.Train(RandomGradients(tables, batches, step), optimizer, SampleHyper(optimizer, step), fused,
                static_cast<GradientFormat>(step % 3), divisor);
    for (int r = 0; r < 2; ++r) EXPECT_TRUE(group.status(r).ok()) << group.status(r).message();
  }
  for (int r = 0; r < 2; ++r) {
    for (size_t t = 0; t < tables.options.size(); ++t) {
      contents.push_back(ContentsOf(&group.table(r, t), group.context(), /*up_to_date=*/true));
    }
    EXPECT_EQ(group.table(r, 0).Describe().steps, engine.is_slow ? 2 : 4);
  }
  return contents;
}

TEST_P(RanksContract, FusedAndSeparateStepsGiveTheSameBitsOnAnyNumberOfThreads) {
  for (const std::string& optimizer : GetParam().optimizers) {
    for (const float divisor : {1.0f, 3.0f}) {
      if (GetParam().is_slow && (divisor == 3.0f) != (optimizer == "adagrad" || optimizer == "adam"))
        continue;
      if (GetParam().is_slowest && divisor == 1.0f) continue;
      SCOPED_TRACE(optimizer + ", divisor " + std::to_string(divisor));
      std::vector<TableContents> first;
      for (const int threads : GetParam().threads) {
        ThreadPool executor(threads, /*min_block_ns=*/0);
        for (const bool fused : {false, true}) {
          const auto contents = ContentsAfterSteps(GetParam(), executor, optimizer, fused, divisor);
          if (first.empty()) first = contents;
          EXPECT_TRUE(contents == first) << threads << " threads, fused: " << fused;
        }
      }
    }
  }
}

// Rows of more floats than sums are kept in a block for, and an id with nearly all occurrences.
TEST_P(RanksContract, LongRowsAndAFrequentIdTrainAlikeInBothSteps) {
  ThreadPool executor(3, /*min_block_ns=*/0);
  for (const int64_t dim : {64, 4096, 4097}) {
    const size_t occurrences = GetParam().is_slow ? 300 : 9000;
    std::vector<std::vector<int64_t>> bags(dim == 64 ? occurrences : 1);
    for (size_t i = 0; i < occurrences; ++i) bags[i % bags.size()].push_back(i == 7 ? 5 : i == 8 ? 6 : 4);
    ContractLookup lookup = SumOf(0, bags);
    lookup.spec.keeps_bags = true;
    std::vector<TableContents> first;
    for (const bool fused : {false, true}) {
      ContractRanks group(GetParam(), executor, 2, {ContractOptions("long", dim)}, {ExchangeMode::kSums});
      group.Forward({{lookup}, {lookup}});
      const OutputValues gradients = {std::vector<float>(bags.size() * static_cast<size_t>(dim), 0.3f)};
      group.Train({gradients, gradients}, "adagrad", SampleHyper("adagrad", 0), fused,
                  GradientFormat::kFloat32, 3.0f);
      std::vector<TableContents> contents;
      for (int r = 0; r < 2; ++r) {
        ASSERT_TRUE(group.status(r).ok()) << group.status(r).message();
        contents.push_back(ContentsOf(&group.table(r, 0), group.context()));
      }
      if (first.empty()) first = contents;
      EXPECT_TRUE(contents == first) << dim;
    }
  }
}

}  // namespace
}  // namespace sok
