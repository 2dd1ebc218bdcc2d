// Tables of both engines that get the same calls, and must hold the same bits after each.
#ifndef SOK_CUDA_ENGINE_TESTING_TWIN_GROUPS_H_
#define SOK_CUDA_ENGINE_TESTING_TWIN_GROUPS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/engine_case.h"
#include "cc/engine/contract/training_reference.h"
#include "cc/optimizers/rule_info.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {

class TwinGroupsTest : public testing::Test {
 protected:
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
      ASSERT_EQ(ContentsOf(&gpu_->table(t), gpu_->context()), ContentsOf(&cpu_->table(t), cpu_->context()))
          << "table " << t;
    }
  }

  InlineExecutor executor_;
  const EngineCase cpu_case_ = CpuCase();
  const EngineCase gpu_case_ = GpuCase();
  size_t tables_ = 0;
  std::unique_ptr<ContractGroup> cpu_;
  std::shared_ptr<ContractGroup> gpu_;
};

// A table of each policy, with the dims that kernels treat differently.
inline std::vector<TableOptions> TablesOfAllKinds() {
  TableOptions plain = ContractOptions("plain", 16);
  TableOptions lru = ContractOptions("lru", 3, /*capacity=*/110);
  lru.on_full = OnFull::kEvictLru;
  lru.eviction.kind = Eviction::Kind::kGlobalStep;
  lru.eviction.steps_to_live = 2;
  lru.initializer.rows = 37;
  TableOptions lfu = ContractOptions("lfu", 1, /*capacity=*/110);
  lfu.on_full = OnFull::kEvictLfu;
  lfu.admission.kind = Admission::Kind::kCounter;
  lfu.admission.filter_freq = 2;
  lfu.admission.default_value = 0.25f;
  lfu.admission.before_lookup = true;
  TableOptions bloom = ContractOptions("bloom", 65);
  GiveRows(7, &bloom);
  bloom.admission.kind = Admission::Kind::kBloom;
  bloom.admission.filter_freq = 3;
  bloom.admission.max_element_size = 50;
  bloom.admission.counter_bits = 8;
  return {plain, lru, lfu, bloom};
}

// The hyper-parameters with which the optimizer's tests train.
inline std::vector<float> SampleHyperOf(const std::string& optimizer) {
  for (const RuleInfo* rule : KnownRules()) {
    if (rule->name == optimizer) return rule->samples[0];
  }
  ADD_FAILURE() << "no optimizer " << optimizer;
  return {};
}

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_TESTING_TWIN_GROUPS_H_
