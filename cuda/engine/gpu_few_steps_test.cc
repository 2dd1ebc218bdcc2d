// Steps of a small group, evictions, and a checkpoint saved and restored: a little of everything that the
// engine does, compared with the CPU engine.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"
#include "cc/engine/contract/contract_group.h"
#include "cuda/engine/testing/both_engines.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

class GpuFewStepsTest : public testing::TestWithParam<std::string> {};

// A table that evicts rows when it is full, and one with admission that evicts rows at a save.
std::vector<TableOptions> TwoTables() {
  TableOptions full = ContractOptions("full", 4, /*capacity=*/4);
  full.on_full = OnFull::kEvictLru;
  TableOptions admitting = ContractOptions("admitting", 3);
  admitting.admission.kind = Admission::Kind::kCounter;
  admitting.admission.filter_freq = 4;  // a step has three of a key at most
  admitting.eviction.kind = Eviction::Kind::kGlobalStep;
  admitting.eviction.steps_to_live = 1;
  return {full, admitting};
}

OutputValues FusedSteps(const EngineCase& engine, const std::string& optimizer) {
  InlineExecutor executor;
  ContractGroup group(engine, executor, TwoTables());
  OutputValues outputs;
  for (int64_t step = 0; step < 3; ++step) {
    // In the last step, row 0 is the least recently used one, and is needed.
    const int64_t needed = step == 2 ? 0 : step;
    const ContractBatch batch = {SumOf(0, {{step, step + 1}, {step, 9}, {}, {needed}}),
                                 SumOf(1, {{7, 8, step}, {8}})};
    EXPECT_TRUE(group.Lookup(batch).ok());
    const OutputValues gradients = group.RandomGradients(batch, static_cast<uint32_t>(step));
    EXPECT_TRUE(group.Train(gradients, optimizer, kAdam).ok());
    outputs.insert(outputs.end(), group.outputs().begin(), group.outputs().end());
  }
  return outputs;
}

TEST_P(GpuFewStepsTest, FusedStepsOfAGroup) {
  EXPECT_EQ(FusedSteps(GpuEngineOfTests(), GetParam()), FusedSteps(CpuEngineOfTests(), GetParam()));
}

// Steps, two saves, a restore, and another step. Returns the files written and the final rows.
std::map<std::string, std::string> SavedSteps(const EngineCase& engine, const std::string& optimizer,
                                              TableState* state) {
  const UseEngine use(engine);
  MemoryFiles files;
  std::mt19937_64 random(1);
  const TableOptions options = TwoTables()[1];
  const Tables tables = MakeTables(options, 1);
  SaveRequest request;
  request.delta = true;
  request.files = &files;
  std::string name;
  for (const uint64_t save : {1, 2}) {
    const auto key = static_cast<int64_t>(save);
    MustBeOk(TrainOn(tables, optimizer, kAdam, {1, 2, 3, key + 3}, &random));
    MustBeOk(TrainOn(tables, optimizer, kAdam, {1, key + 4}, &random));
    MustBeOk(Erase(tables[0].get(), {3}));
    request.prefix = "/model.ckpt-" + std::to_string(save);
    request.id = SaveId(save);
    name = Save(tables, request).value();
  }
  const auto restored = Restore(files, request.prefix, name, options, 1);
  MustBeOk(restored.status());
  EXPECT_TRUE(StateOf(restored.value()) == StateOf(tables));
  MustBeOk(TrainOn(restored.value(), optimizer, kAdam, {1, 100}, &random));
  *state = StateOf(restored.value());
  std::map<std::string, std::string> written;
  for (const auto& [path, bytes] : files.AllFiles()) written[path] = *bytes;
  return written;
}

TEST_P(GpuFewStepsTest, ACheckpointIsThatOfTheCpu) {
  TableState on_gpu;
  TableState on_cpu;
  const auto written = SavedSteps(GpuEngineOfTests(), GetParam(), &on_gpu);
  EXPECT_TRUE(written == SavedSteps(CpuEngineOfTests(), GetParam(), &on_cpu));
  EXPECT_TRUE(on_gpu == on_cpu);
  EXPECT_FALSE(on_gpu.rows.empty());
  EXPECT_FALSE(on_gpu.waiting.empty());
}

INSTANTIATE_TEST_SUITE_P(Optimizers, GpuFewStepsTest, testing::Values("adam", "lazy_adam"));

}  // namespace
}  // namespace sok
