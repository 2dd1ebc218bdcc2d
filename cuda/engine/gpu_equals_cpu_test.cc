// The same calls leave the same bits behind in tables of both engines: outputs, rows, row numbers,
// references, gradients and numbers of rows.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/engine/contract/contract_group.h"
#include "cc/engine/cpu_engine.h"
#include "cc/engine/held_table.h"
#include "cc/optimizers/optimizer.h"
#include "cuda/base/round_trip.h"
#include "cuda/device_test.h"
#include "cuda/engine/gpu_case.h"

namespace sok {
namespace {

EngineCase CpuCase() {
  static CpuEngine* const engine = new CpuEngine;
  EngineCase engine_case;
  engine_case.name = "cpu";
  engine_case.engine = engine;
  return engine_case;
}

// All that a table holds, row by row in the order of row numbers.
struct Contents {
  std::vector<int64_t> numbers;
  std::vector<int64_t> keys;
  std::vector<float> records;
  std::vector<int64_t> columns;

  bool operator==(const Contents& other) const {
    return numbers == other.numbers && keys == other.keys && records == other.records &&
           columns == other.columns;
  }
};

Contents ContentsOf(ContractGroup& group, size_t t) {
  Contents contents;
  const auto held = group.table(t).Hold(group.context());
  EXPECT_TRUE(held.ok());
  RowsToRead what;
  what.parts = held.value()->state().parts;
  const int64_t dim = held.value()->options().dim;
  const Status status = held.value()->ReadRows(what, [&](const RowPiece& piece) {
    contents.numbers.insert(contents.numbers.end(), piece.numbers.begin(), piece.numbers.end());
    contents.keys.insert(contents.keys.end(), piece.keys.begin(), piece.keys.end());
    for (const float* record : piece.records) {
      contents.records.insert(contents.records.end(), record, record + dim);
    }
    for (const Span<const int64_t> column :
         {piece.frequency, piece.last_step, piece.last_used, piece.last_current}) {
      contents.columns.insert(contents.columns.end(), column.begin(), column.end());
    }
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return contents;
}

class GpuEqualsCpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }

  void Make(const std::vector<TableOptions>& options) {
    tables_ = options.size();
    cpu_ = std::make_unique<ContractGroup>(cpu_case_, executor_, options);
    gpu_ = std::make_unique<ContractGroup>(gpu_case_, executor_, options);
  }

  void Lookup(const ContractBatch& batch, bool training) {
    const Status on_cpu = cpu_->Lookup(batch, training);
    const Status on_gpu = gpu_->Lookup(batch, training);
    ASSERT_EQ(on_gpu.code(), on_cpu.code()) << on_gpu.message();
    ASSERT_EQ(on_gpu.message(), on_cpu.message());
    if (!on_cpu.ok()) return;
    ASSERT_EQ(gpu_->outputs(), cpu_->outputs());
    for (size_t t = 0; t < tables_; ++t) {
      ASSERT_EQ(gpu_->plan().trained_rows(static_cast<int>(t)),
                cpu_->plan().trained_rows(static_cast<int>(t)));
      ExpectSameCounts(t);
    }
  }

  void ExpectSameCounts(size_t t) {
    const LookupCounts& on_cpu = cpu_->table(t).lookup_counts();
    const LookupCounts& on_gpu = gpu_->table(t).lookup_counts();
    EXPECT_EQ(on_gpu.ids, on_cpu.ids);
    EXPECT_EQ(on_gpu.distinct_ids, on_cpu.distinct_ids);
    EXPECT_EQ(on_gpu.admitted_ids, on_cpu.admitted_ids);
    EXPECT_EQ(on_gpu.filtered_ids, on_cpu.filtered_ids);
  }

  // A step of the batch just looked up: with the gradients' sums in memory, or fused.
  void Train(const OutputValues& gradients, const std::string& optimizer, const std::vector<float>& hyper,
             bool fused) {
    if (fused) {
      ASSERT_TRUE(cpu_->Train(gradients, optimizer, hyper).ok());
      ASSERT_TRUE(gpu_->Train(gradients, optimizer, hyper).ok());
      return;
    }
    std::vector<ValuesByKey> on_cpu;
    std::vector<ValuesByKey> on_gpu;
    ASSERT_TRUE(cpu_->Backward(gradients, &on_cpu).ok());
    ASSERT_TRUE(gpu_->Backward(gradients, &on_gpu).ok());
    ASSERT_EQ(on_gpu, on_cpu) << "references, or sums of gradients";
    ASSERT_TRUE(cpu_->BackwardAndApply(gradients, optimizer, hyper).ok());
    ASSERT_TRUE(gpu_->BackwardAndApply(gradients, optimizer, hyper).ok());
  }

  void Erase(size_t t, const std::vector<int64_t>& keys) {
    int64_t on_cpu = 0;
    int64_t on_gpu = 0;
    ASSERT_TRUE(cpu_->Erase(t, keys, &on_cpu).ok());
    ASSERT_TRUE(gpu_->Erase(t, keys, &on_gpu).ok());
    ASSERT_EQ(on_gpu, on_cpu);
  }

  void ExpectSameContents() {
    for (size_t t = 0; t < tables_; ++t) {
      const TableDescription on_cpu = cpu_->table(t).Describe();
      const TableDescription on_gpu = gpu_->table(t).Describe();
      EXPECT_EQ(on_gpu.rows, on_cpu.rows);
      EXPECT_EQ(on_gpu.steps, on_cpu.steps);
      EXPECT_EQ(on_gpu.optimizer, on_cpu.optimizer);
      ASSERT_EQ(ContentsOf(*gpu_, t), ContentsOf(*cpu_, t)) << "table " << t;
    }
  }

  InlineExecutor executor_;
  const EngineCase cpu_case_ = CpuCase();
  const EngineCase gpu_case_ = GpuCase();
  size_t tables_ = 0;
  std::unique_ptr<ContractGroup> cpu_;
  std::unique_ptr<ContractGroup> gpu_;
};

// A table of each policy. Their dims are those that kernels treat apart.
std::vector<TableOptions> TablesOfAllKinds() {
  TableOptions plain = ContractOptions("plain", 16);
  TableOptions lru = ContractOptions("lru", 3, /*capacity=*/110);
  lru.on_full = OnFull::kEvictLru;
  lru.eviction.kind = Eviction::Kind::kGlobalStep;
  lru.eviction.steps_to_live = 2;
  TableOptions lfu = ContractOptions("lfu", 1, /*capacity=*/110);
  lfu.on_full = OnFull::kEvictLfu;
  lfu.admission.kind = Admission::Kind::kCounter;
  lfu.admission.filter_freq = 2;
  lfu.admission.default_value = 0.25f;
  TableOptions bloom = ContractOptions("bloom", 65);
  bloom.admission.kind = Admission::Kind::kBloom;
  bloom.admission.filter_freq = 3;
  bloom.admission.max_element_size = 50;
  bloom.admission.counter_bits = 8;
  return {plain, lru, lfu, bloom};
}

TEST_F(GpuEqualsCpuTest, StepsOfTablesOfAllKinds) {
  const std::vector<int64_t> dims = {16, 3, 1, 65};
  for (const std::string optimizer : {"adagrad", "adam"}) {
    SCOPED_TRACE(optimizer);
    Make(TablesOfAllKinds());
    std::vector<float> hyper;
    for (const RuleInfo* rule : KnownRules()) {
      if (rule->name == optimizer) hyper = rule->samples[0];
    }
    ASSERT_FALSE(hyper.empty());
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
