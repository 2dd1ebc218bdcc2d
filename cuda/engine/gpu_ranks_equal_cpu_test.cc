// Ranks of both engines send each other the same words in all exchanges, and the same bits are in outputs,
// gradients and tables afterwards.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/executor.h"
#include "cc/engine/contract/contract_ranks.h"
#include "cc/engine/contract/sharded_tables.h"
#include "cc/messages/message.h"
#include "cuda/base/transfers.h"
#include "cuda/engine/testing/gpu_case.h"
#include "cuda/engine/testing/twin_groups.h"

namespace sok {
namespace {

constexpr int64_t kTokenWord = 3;

class GpuRanksEqualCpuTest : public testing::Test {
 protected:
  void Make(const ShardedTables& group, int ranks) {
    group_ = group;
    cpu_ = std::make_unique<ContractRanks>(cpu_case_, executor_, ranks, group.options, group.modes);
    gpu_ = std::make_unique<ContractRanks>(gpu_case_, executor_, ranks, group.options, group.modes);
  }

  // Words of the exchanges since the last call. Tokens differ: they are numbered over the whole process.
  static ContractRanks::SentWords WordsOf(ContractRanks& ranks) {
    ContractRanks::SentWords words = ranks.TakeSentWords();
    for (auto& exchange : words) {
      for (std::vector<int64_t>& of_rank : exchange) Mask(&of_rank);
    }
    return words;
  }
  static void Mask(std::vector<int64_t>* words) {
    for (size_t i = 0; i + kTokenWord < words->size(); ++i) {
      HeaderWords header;
      const auto size = static_cast<int64_t>(words->size() - i);
      const int64_t* const at = words->data() + i;
      const bool is_header = ReadHeaderWords(at, size, MessageKind::kReply, &header).ok() ||
                             ReadHeaderWords(at, size, MessageKind::kGradients, &header).ok();
      if (is_header && header.code == StatusCode::kOk) (*words)[i + kTokenWord] = 0;
    }
  }

  void ExpectSameWords(size_t exchanges) {
    const ContractRanks::SentWords on_cpu = WordsOf(*cpu_);
    const ContractRanks::SentWords on_gpu = WordsOf(*gpu_);
    ASSERT_EQ(on_cpu.size(), exchanges);
    ASSERT_EQ(on_gpu.size(), exchanges);
    for (size_t e = 0; e < exchanges; ++e) {
      for (int r = 0; r < cpu_->size(); ++r) {
        ASSERT_EQ(on_gpu[e][r], on_cpu[e][r]) << "exchange " << e << ", sent by rank " << r;
      }
    }
  }

  void Forward(const std::vector<ContractBatch>& batches, bool training,
               const std::vector<Status>& errors = {}, const std::vector<bool>& only_reads = {}) {
    cpu_->Forward(batches, training, errors, only_reads);
    gpu_->Forward(batches, training, errors, only_reads);
    ASSERT_NO_FATAL_FAILURE(ExpectSameWords(2));
    for (int r = 0; r < cpu_->size(); ++r) {
      ASSERT_EQ(gpu_->status(r).code(), cpu_->status(r).code()) << gpu_->status(r).message();
      ASSERT_EQ(gpu_->status(r).message(), cpu_->status(r).message());
      if (!cpu_->status(r).ok()) continue;
      ASSERT_EQ(gpu_->outputs(r), cpu_->outputs(r)) << "rank " << r;
      for (size_t t = 0; t < group_.options.size(); ++t) {
        ASSERT_EQ(gpu_->served(r).trained_rows(static_cast<int>(t)),
                  cpu_->served(r).trained_rows(static_cast<int>(t)));
      }
    }
  }

  void Train(const std::vector<OutputValues>& gradients, const std::string& optimizer,
             const std::vector<float>& hyper, bool fused, GradientFormat format) {
    cpu_->Train(gradients, optimizer, hyper, fused, format);
    gpu_->Train(gradients, optimizer, hyper, fused, format);
    ASSERT_NO_FATAL_FAILURE(ExpectSameWords(1));
    for (int r = 0; r < cpu_->size(); ++r) {
      ASSERT_TRUE(cpu_->status(r).ok()) << cpu_->status(r).message();
      ASSERT_TRUE(gpu_->status(r).ok()) << gpu_->status(r).message();
    }
  }

  void ExpectSameTables() {
    const EngineContext on_cpu = {executor_, cpu_case_.memory->stream()};
    const EngineContext on_gpu = {executor_, gpu_case_.memory->stream()};
    for (int r = 0; r < cpu_->size(); ++r) {
      for (size_t t = 0; t < group_.options.size(); ++t) {
        SCOPED_TRACE("rank " + std::to_string(r) + ", table " + std::to_string(t));
        ASSERT_EQ(ContentsOf(&gpu_->table(r, t), on_gpu), ContentsOf(&cpu_->table(r, t), on_cpu));
        const LookupCounts& cpu_counts = cpu_->table(r, t).lookup_counts();
        const LookupCounts& gpu_counts = gpu_->table(r, t).lookup_counts();
        EXPECT_EQ(gpu_counts.ids, cpu_counts.ids);
        EXPECT_EQ(gpu_counts.distinct_ids, cpu_counts.distinct_ids);
        EXPECT_EQ(gpu_counts.admitted_ids, cpu_counts.admitted_ids);
        EXPECT_EQ(gpu_counts.filtered_ids, cpu_counts.filtered_ids);
        EXPECT_EQ(gpu_counts.bytes_sent, cpu_counts.bytes_sent);
      }
    }
  }

  void TakeSteps(const ShardedTables& group, int ranks, uint32_t steps) {
    Make(group, ranks);
    for (uint32_t step = 0; step < steps; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const auto format = static_cast<GradientFormat>(step % 3);
      const std::vector<ContractBatch> batches = RandomBatches(group, ranks, step);
      ASSERT_NO_FATAL_FAILURE(Forward(batches, /*training=*/true));
      ASSERT_NO_FATAL_FAILURE(Train(RandomGradients(group, batches, step), "adagrad", {0.5f, 0.1f, 1e-7f},
                                    step % 2 == 1, format));
      ASSERT_NO_FATAL_FAILURE(Forward(RandomBatches(group, ranks, step + 50), /*training=*/false));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSameTables());
  }

  InlineExecutor executor_;
  const EngineCase cpu_case_ = CpuCase();
  const EngineCase gpu_case_ = GpuCase();
  ShardedTables group_;
  std::unique_ptr<ContractRanks> cpu_;
  std::unique_ptr<ContractRanks> gpu_;
};

TEST_F(GpuRanksEqualCpuTest, StepsOfTablesOfAllPlacements) {
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    ASSERT_NO_FATAL_FAILURE(TakeSteps(TablesOfAllPlacements(ranks), ranks, 3));
  }
}

TEST_F(GpuRanksEqualCpuTest, StepsOfTablesOfAllPolicies) {
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    ASSERT_NO_FATAL_FAILURE(TakeSteps(TablesOfAllPolicies(), ranks, 4));
  }
}

// Of types that differ between tables of a group, with dims of which some rows end in half of a float.
ShardedTables InTypes(ShardedTables group) {
  constexpr FloatType kTypes[] = {FloatType::kBfloat16, FloatType::kFloat16, FloatType::kFloat32};
  for (size_t t = 0; t < group.options.size(); ++t) {
    group.options[t].record.weights = kTypes[t % 3];
    group.options[t].record.slots = t % 2 == 0 ? FloatType::kBfloat16 : FloatType::kFloat32;
  }
  return group;
}

TEST_F(GpuRanksEqualCpuTest, StepsOfRowsIn16Bits) {
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    ASSERT_NO_FATAL_FAILURE(TakeSteps(InTypes(TablesOfAllPlacements(ranks)), ranks, 2));
    ASSERT_NO_FATAL_FAILURE(TakeSteps(InTypes(TablesOfAllPolicies()), ranks, 2));
  }
}

TEST_F(GpuRanksEqualCpuTest, SomeRanksOnlyRead) {
  for (const ShardedTables& group : {TablesOfAllPlacements(3), TablesOfAllPolicies()}) {
    Make(group, 3);
    for (uint32_t step = 0; step < 3; ++step) {
      const std::vector<bool> only_reads = {step == 1, step == 2, true};
      const std::vector<ContractBatch> batches = RandomBatches(group, 3, step);
      ASSERT_NO_FATAL_FAILURE(Forward(batches, /*training=*/true, {}, only_reads));
      ASSERT_NO_FATAL_FAILURE(Train(RandomGradients(group, batches, step), "sgd", {0.5f}, step % 2 == 1,
                                    GradientFormat::kFloat32));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSameTables());
  }
}

TEST_F(GpuRanksEqualCpuTest, ErrorsAreTheSameWords) {
  const ShardedTables group = TablesOfAllPlacements(3);
  Make(group, 3);
  const std::vector<ContractBatch> batches = RandomBatches(group, 3, 2);
  ASSERT_NO_FATAL_FAILURE(Forward(batches, true, {OkStatus(), InvalidArgument("odd words"), OkStatus()}));
  ASSERT_NO_FATAL_FAILURE(
      Forward(batches, true, {ResourceExhausted(""), InvalidArgument("odd"), OkStatus()}));
  std::vector<ContractBatch> unknown = batches;
  for (ContractLookup& lookup : unknown[2]) {
    if (lookup.spec.table != 4) continue;
    lookup = SumOf(4, {{5, 60 * 3 + 1}});
    lookup.spec.keeps_bags = true;
  }
  ASSERT_NO_FATAL_FAILURE(Forward(unknown, true));
  EXPECT_EQ(gpu_->status(0).code(), StatusCode::kInvalidArgument);
  ASSERT_NO_FATAL_FAILURE(Forward(unknown, false));
  EXPECT_EQ(gpu_->status(0).code(), StatusCode::kInvalidArgument);
  ASSERT_NO_FATAL_FAILURE(Forward(batches, true));
  EXPECT_TRUE(gpu_->status(0).ok());
}

TEST_F(GpuRanksEqualCpuTest, TablesThatDifferAreDescribedAlike) {
  ShardedTables group;
  group.Add(PlacedOptions(3));
  ShardedTables other = group;
  other.options[0].capacity = 9;
  Make(group, 2);
  ContractRanks other_cpu(cpu_case_, executor_, 2, other.options, other.modes);
  ContractRanks other_gpu(gpu_case_, executor_, 2, other.options, other.modes);
  cpu_->SwapRank(1, &other_cpu);
  gpu_->SwapRank(1, &other_gpu);
  ASSERT_NO_FATAL_FAILURE(Forward(RandomBatches(group, 2, 2), true));
  EXPECT_EQ(gpu_->status(0).code(), StatusCode::kFailedPrecondition);
}

TEST_F(GpuRanksEqualCpuTest, GradientsOfWeights) {
  for (const ShardedTables& group : {TablesOfAllPlacements(3), InTypes(TablesOfAllPlacements(3))}) {
    Make(group, 3);
    const std::vector<ContractBatch> batches = RandomBatches(group, 3, 5);
    ASSERT_NO_FATAL_FAILURE(Forward(batches, true));
    const std::vector<OutputValues> gradients = RandomGradients(group, batches, 5);
    for (int r = 0; r < 3; ++r) {
      OutputValues on_cpu;
      OutputValues on_gpu;
      ASSERT_TRUE(cpu_->WeightGradients(r, gradients[r], &on_cpu).ok());
      ASSERT_TRUE(gpu_->WeightGradients(r, gradients[r], &on_gpu).ok());
      for (size_t l = 0; l < batches[r].size(); ++l) {
        if (!batches[r][l].spec.weighted) continue;
        EXPECT_EQ(on_gpu[l], on_cpu[l]) << "rank " << r << ", lookup " << l;
      }
    }
  }
}

TEST_F(GpuRanksEqualCpuTest, RoundTrips) {
  ShardedTables group = TablesOfAllPlacements(2);
  Make(group, 2);
  std::vector<ContractBatch> batches = RandomBatches(group, 2, 2);
  for (ContractBatch& batch : batches) {
    for (ContractLookup& lookup : batch) lookup.shuffle_seed = 0;
  }
  // For each rank: Route, Serve and Combine.
  for (const bool training : {true, false, true}) {
    const int64_t before = RoundTrip::count();
    gpu_->Forward(batches, training);
    EXPECT_EQ(RoundTrip::count() - before, 2 * (1 + 2 + 1));
  }
  const std::vector<OutputValues> gradients = RandomGradients(group, batches, 2);
  int64_t before = RoundTrip::count();
  ASSERT_TRUE(gpu_->Reduce(0, gradients[0]).ok());
  EXPECT_EQ(RoundTrip::count() - before, 0);
  gpu_->Forward(batches);
  before = RoundTrip::count();
  gpu_->Train(gradients, "sgd", {0.5f}, /*fused=*/true);
  EXPECT_EQ(RoundTrip::count() - before, 2 * 1);
  OutputValues weight_gradients;
  gpu_->Forward(batches);
  before = RoundTrip::count();
  ASSERT_TRUE(gpu_->WeightGradients(0, gradients[0], &weight_gradients).ok());
  EXPECT_EQ(RoundTrip::count() - before, 1);
}

TEST_F(GpuRanksEqualCpuTest, IdsThatAreOutOfOrderCostAnotherRoundTripOnce) {
  ShardedTables group;
  group.Add(PlacedOptions(2));
  Make(group, 1);
  ContractLookup lookup = SumOf(0, {{1, 2, 3}, {4, 5}, {6}});
  lookup.shuffle_seed = 3;
  for (const int64_t route : {2, 1, 1}) {
    const int64_t before = RoundTrip::count();
    gpu_->Forward({{lookup}});
    EXPECT_EQ(RoundTrip::count() - before, route + 2 + 1);
  }
}

}  // namespace
}  // namespace sok
