// The same calls leave the same bits behind in tables of both engines: outputs, rows, row numbers,
// references, gradients and numbers of rows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/base/transfers.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/engine/testing/twin_groups.h"

namespace sok {
namespace {

std::vector<float> RandomValues(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

// Fills rows with positive numbers that need rounding, with or without their slots, as a restore does.
void Fill(EngineTable* table, const EngineContext& context, const std::vector<int64_t>& keys, bool slots) {
  const auto held = table->Hold(context);
  ASSERT_TRUE(held.ok());
  RowParts parts;
  parts.slots = slots;
  const int64_t width = RecordWidth(*held.value(), parts);
  const std::vector<float> values = RandomValues(width * static_cast<int64_t>(keys.size()), 7);
  const Status status = held.value()->FillRows(keys, parts, [&](const RowsToFill& rows) {
    for (size_t i = 0; i < keys.size(); ++i) {
      for (int64_t c = 0; c < width; ++c) rows.records[i][c] = std::abs(values[i * width + c]);
    }
    return OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status.message();
}

class GpuEqualsCpuTest : public TwinGroupsTest {
 protected:
  void ExpectSameWeightGradients(const ContractBatch& batch, uint32_t seed) {
    const OutputValues gradients = gpu_->RandomGradients(batch, seed);
    OutputValues on_cpu;
    OutputValues on_gpu;
    ASSERT_TRUE(cpu_->WeightGradients(gradients, &on_cpu).ok());
    ASSERT_TRUE(gpu_->WeightGradients(gradients, &on_gpu).ok());
    for (size_t l = 0; l < batch.size(); ++l) {
      if (!batch[l].spec.weighted) continue;
      ASSERT_EQ(on_gpu[l], on_cpu[l]) << "lookup " << l;
    }
  }
};

TEST_F(GpuEqualsCpuTest, StepsOfTablesOfAllKinds) {
  const std::vector<int64_t> dims = {16, 3, 1, 65};
  for (const std::string optimizer : {"adagrad", "adam"}) {
    SCOPED_TRACE(optimizer);
    Make(TablesOfAllKinds());
    const std::vector<float> hyper = SampleHyperOf(optimizer);
    for (uint32_t step = 0; step < 6; ++step) {
      SCOPED_TRACE(step);
      const ContractBatch batch = RandomBatch(step, 12, dims);
      ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
      ASSERT_NO_FATAL_FAILURE(Train(gpu_->RandomGradients(batch, step), optimizer, hyper, step % 2 == 1));
      ASSERT_NO_FATAL_FAILURE(Lookup(RandomBatch(step + 50, 5, dims), /*training=*/false));
      ASSERT_NO_FATAL_FAILURE(Erase(step % 4, {0, -1, 5, INT64_MAX, 12, static_cast<int64_t>(step)}));
      ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
    }
  }
}

constexpr FloatType kF32 = FloatType::kFloat32;
constexpr FloatType kF16 = FloatType::kFloat16;
constexpr FloatType kBf16 = FloatType::kBfloat16;
constexpr RecordFormat kFormats[] = {
    {kBf16, kBf16}, {kF16, kF32},  {kF32, kBf16},
    {kBf16, kF32},  {kF16, kBf16}, {kBf16, kBf16, Rounding::kNearest},
    {kF32, kF32},
};

// Table t gets format first + t, so that one call has records of several kinds.
std::vector<TableOptions> WithFormats(std::vector<TableOptions> tables, size_t first) {
  for (size_t t = 0; t < tables.size(); ++t) tables[t].record = kFormats[(first + t) % std::size(kFormats)];
  return tables;
}

// Of dims whose numbers do and do not fit vectors: 4 modulo 8, where slots of floats do not, and odd ones.
const std::vector<int64_t> kRoundedDims = {16, 3, 1, 65, 12, 64, 130};
std::vector<TableOptions> RoundedTables(size_t first) {
  std::vector<TableOptions> tables = TablesOfAllKinds();
  for (size_t t = tables.size(); t < kRoundedDims.size(); ++t) {
    tables.push_back(ContractOptions("plain" + std::to_string(t), kRoundedDims[t]));
  }
  return WithFormats(std::move(tables), first);
}

TEST_F(GpuEqualsCpuTest, StepsOfRecordsIn16Bits) {
  for (size_t first = 0; first < std::size(kFormats); ++first) {
    SCOPED_TRACE(first);
    Make(RoundedTables(first));
    const std::string optimizer = first % 2 == 0 ? "rowwise_adam" : "lazy_adam";
    const std::vector<float> hyper = SampleHyperOf(optimizer);
    for (uint32_t step = 0; step < 3; ++step) {
      SCOPED_TRACE(step);
      const ContractBatch batch = RandomBatch(step + static_cast<uint32_t>(first), 12, kRoundedDims);
      ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
      ASSERT_NO_FATAL_FAILURE(ExpectSameWeightGradients(batch, step));
      ASSERT_NO_FATAL_FAILURE(Train(gpu_->RandomGradients(batch, step), optimizer, hyper, step % 2 == 1));
      ASSERT_NO_FATAL_FAILURE(Lookup(RandomBatch(step + 50, 5, kRoundedDims), /*training=*/false));
      ASSERT_NO_FATAL_FAILURE(Erase(step % 4, {0, -1, 5, INT64_MAX, 12, static_cast<int64_t>(step)}));
      ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
    }
  }
}

TEST_F(GpuEqualsCpuTest, EveryRuleRoundsRecordsAlike) {
  size_t first = 0;
  for (const RuleInfo* rule : KnownRules()) {
    if (rule->untouched != UntouchedRows::kStay) continue;
    for (const std::vector<float>& hyper : rule->samples) {
      if (!rule->has_same_bits_everywhere(hyper.data())) continue;
      SCOPED_TRACE(rule->name);
      std::vector<TableOptions> tables;
      const std::vector<int64_t> dims = {16, 7, 36, 130};
      for (const int64_t dim : dims) tables.push_back(ContractOptions("table" + std::to_string(dim), dim));
      Make(WithFormats(std::move(tables), first++));
      for (uint32_t step = 0; step < 2; ++step) {
        const ContractBatch batch = RandomBatch(step, 4, dims);
        ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
        ASSERT_NO_FATAL_FAILURE(Train(gpu_->RandomGradients(batch, step), rule->name, hyper, step == 0));
        ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
      }
    }
  }
}

TEST_F(GpuEqualsCpuTest, LongBagsAndLongRowsIn16Bits) {
  for (size_t first = 0; first < 2; ++first) {
    Make(WithFormats({ContractOptions("long_bags", 5), ContractOptions("wide", 1028)}, first));
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 1100; ++i) ids.push_back(i * i % 41);
    ContractBatch batch = {SumOf(0, {ids, {1}}), SumOf(1, {{1, 2}, {2, 2}})};
    for (const bool training : {true, false}) {
      ASSERT_NO_FATAL_FAILURE(Lookup(batch, training));
      if (!training) continue;
      ASSERT_NO_FATAL_FAILURE(
          Train(gpu_->RandomGradients(batch, 1), "group_ftrl", SampleHyperOf("group_ftrl"), /*fused=*/true));
      ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
      for (double& weight : batch[0].bags[0].weights) weight = 0.25;
      batch[0].spec.weighted = true;
    }
  }
}

TEST_F(GpuEqualsCpuTest, AssignedAndFilledRowsIn16Bits) {
  const std::vector<int64_t> keys = {4, -9, INT64_MAX, 0, 71};
  for (size_t first = 0; first < std::size(kFormats); ++first) {
    SCOPED_TRACE(first);
    Make(RoundedTables(first));
    const ContractBatch batch = RandomBatch(3, 6, kRoundedDims);
    ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
    for (size_t t = 0; t < tables_; ++t) {
      const int64_t dim = kRoundedDims[t];
      const std::vector<float> values = RandomValues(static_cast<int64_t>(keys.size()) * dim, first);
      ASSERT_TRUE(cpu_->Assign(t, keys, values).ok());
      ASSERT_TRUE(gpu_->Assign(t, keys, values).ok());
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
    // The stream comes from the key, for rows that an assignment or a restore made, too.
    ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
    ASSERT_NO_FATAL_FAILURE(Train(gpu_->RandomGradients(batch, 1), "rowwise_adam",
                                  SampleHyperOf("rowwise_adam"), /*fused=*/true));
    for (const bool slots : {true, false}) {
      for (size_t t = 0; t < tables_; ++t) {
        ASSERT_NO_FATAL_FAILURE(Fill(&cpu_->table(t), cpu_->context(), keys, slots));
        ASSERT_NO_FATAL_FAILURE(Fill(&gpu_->table(t), gpu_->context(), keys, slots));
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
    }
    ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
    ASSERT_NO_FATAL_FAILURE(Train(gpu_->RandomGradients(batch, 2), "rowwise_adam",
                                  SampleHyperOf("rowwise_adam"), /*fused=*/false));
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  }
}

TEST_F(GpuEqualsCpuTest, RulesWithACatchUpAreRefusedAlike) {
  for (const RuleInfo* rule : KnownRules()) {
    if (rule->untouched == UntouchedRows::kStay) continue;
    Make(WithFormats({ContractOptions("table", 4)}, 2));
    const ContractBatch batch = {SumOf(0, {{1, 2}})};
    ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
    const OutputValues gradients = gpu_->RandomGradients(batch, 1);
    const Status on_cpu = cpu_->Train(gradients, rule->name, rule->samples[0]);
    const Status on_gpu = gpu_->Train(gradients, rule->name, rule->samples[0]);
    EXPECT_EQ(on_gpu.code(), StatusCode::kInvalidArgument) << rule->name;
    EXPECT_EQ(on_gpu.message(), on_cpu.message());
  }
}

TEST_F(GpuEqualsCpuTest, BytesOfARow) {
  TableOptions options = ContractOptions("table", 64);
  options.record = {kBf16, kBf16};
  Make({options});
  ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{1}})}, /*training=*/true));
  ASSERT_TRUE(
      gpu_->Train({{std::vector<float>(64, 1.0f)}}, "rowwise_adam", SampleHyperOf("rowwise_adam")).ok());
  const auto* const table = static_cast<const GpuTable*>(&gpu_->table(0));
  EXPECT_EQ(table->table().rows().record_bytes, 272) << "64 + 64 numbers of 16 bits, one of 32, a stream";
}

TEST_F(GpuEqualsCpuTest, LookupsThatDoNotFit) {
  TableOptions small = ContractOptions("small", 2, /*capacity=*/3);
  TableOptions evicting = ContractOptions("evicting", 2, /*capacity=*/3);
  evicting.on_full = OnFull::kEvictLru;
  for (const TableOptions& options : {small, evicting}) {
    Make({options});
    ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{1, 2}})}, true));
    ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{3, 4}})}, true));
    ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{3, 4, 5, 6}})}, true));
    ASSERT_NO_FATAL_FAILURE(Lookup({SumOf(0, {{3, 2, 5}})}, true));
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  }
}

TEST_F(GpuEqualsCpuTest, ALookupWaitsForTheDeviceOnce) {
  Make({ContractOptions("table", 4), ContractOptions("other", 4)});
  const ContractBatch batch = {SumOf(0, {{1, 2}, {3}}), SumOf(1, {{4}, {4, 5}})};
  for (const bool training : {true, false}) {
    const int64_t before = RoundTrip::count();
    ASSERT_TRUE(gpu_->Lookup(batch, training).ok());
    EXPECT_EQ(RoundTrip::count() - before, 1);
  }
  ASSERT_TRUE(gpu_->Lookup(batch).ok());
  const OutputValues gradients = gpu_->RandomGradients(batch, 1);
  const int64_t before = RoundTrip::count();
  ASSERT_TRUE(gpu_->Train(gradients, "sgd", {0.5f}).ok());
  EXPECT_EQ(RoundTrip::count() - before, 0) << "a fused step waits for nothing";
}

TEST_F(GpuEqualsCpuTest, IdsThatAreOutOfOrderCostAnotherRoundTripOnce) {
  Make({ContractOptions("table", 4)});
  ContractBatch batch = {SumOf(0, {{1, 2, 3}, {4, 5}, {6}})};
  batch[0].shuffle_seed = 3;
  int64_t before = RoundTrip::count();
  ASSERT_NO_FATAL_FAILURE(Lookup(batch, true));
  EXPECT_EQ(RoundTrip::count() - before, 2);
  before = RoundTrip::count();
  ASSERT_NO_FATAL_FAILURE(Lookup(batch, true));
  EXPECT_EQ(RoundTrip::count() - before, 1) << "the plan remembers it";
}

}  // namespace
}  // namespace sok
