// Tables whose rows are in host memory: they pass the engine contract, have the bits of tables in device
// memory, and are where they should be.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/saved_ranks.h"
#include "cc/engine/contract/contract_group.h"
#include "cc/engine/contract/suites.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/engine/testing/both_engines.h"
#include "cuda/engine/testing/gpu_case.h"

namespace sok {
namespace {

EngineCase InHostMemory(EngineCase engine_case) {
  engine_case.row_memory = RowMemory::kHost;
  return engine_case;
}

#define SOK_HOST_MEMORY_OFFERS(suite) \
  INSTANTIATE_TEST_SUITE_P(Gpu, suite, testing::Values(InHostMemory(GpuCase())), NameOfCase)

SOK_HOST_MEMORY_OFFERS(TableContract);
SOK_HOST_MEMORY_OFFERS(StaticContract);
SOK_HOST_MEMORY_OFFERS(EraseContract);
SOK_HOST_MEMORY_OFFERS(ContentsContract);

TableOptions Options(const std::string& name, int64_t dim, RowMemory memory) {
  TableOptions options = ContractOptions(name, dim);
  options.memory = memory;
  return options;
}

// The kind of memory that the first slab of a table is in.
cudaMemoryType MemoryOfRows(EngineTable* table) {
  char* slab = nullptr;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(&slab, DeviceTableOf(table)->rows().slabs, sizeof(slab), cudaMemcpyDeviceToHost),
            cudaSuccess);
  cudaPointerAttributes attributes = {};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, slab), cudaSuccess);
  return attributes.type;
}

TEST(GpuHostMemoryTest, RowsAndSlotsAreInPinnedMemory) {
  std::mt19937_64 random(1);
  for (const bool hashed : {true, false}) {
    TableOptions options = Options("table", 3, RowMemory::kHost);
    options.use_hashtable = hashed;
    if (!hashed) options.capacity = 50;
    const Tables tables = MakeTables(options, 1);
    if (!hashed) {
      EXPECT_EQ(MemoryOfRows(tables[0].get()), cudaMemoryTypeHost);
    }
    MustBeOk(TrainOn(tables, "sgd", {0.1f}, {1, 2, 3}, &random));
    EXPECT_EQ(MemoryOfRows(tables[0].get()), cudaMemoryTypeHost);
  }
  const Tables tables = MakeTables(Options("table", 3, RowMemory::kHost), 1);
  MustBeOk(TrainOn(tables, "adagrad", {0.1f, 0.1f, 0.0f}, {1, 2, 3}, &random));
  EXPECT_EQ(MemoryOfRows(tables[0].get()), cudaMemoryTypeHost) << "with slots";
  const Tables on_device = MakeTables(Options("table", 3, RowMemory::kDevice), 1);
  MustBeOk(TrainOn(on_device, "sgd", {0.1f}, {1, 2, 3}, &random));
  EXPECT_EQ(MemoryOfRows(on_device[0].get()), cudaMemoryTypeDevice);
}

// The bits do not depend on where rows are, nor on the engine.
TEST(GpuHostMemoryTest, StepsGiveTheSameBits) {
  const std::vector<int64_t> keys = DistinctIds(150, 4);
  for (const std::string optimizer : {"adam", "lazy_adam"}) {
    std::vector<TableState> states;
    for (const EngineCase* engine : {&CpuEngineOfTests(), &GpuEngineOfTests()}) {
      for (const RowMemory memory : {RowMemory::kDevice, RowMemory::kHost}) {
        const UseEngine use(*engine);
        std::mt19937_64 random(5);
        TableOptions options = Options("table", 17, memory);
        options.capacity = 100;
        options.on_full = OnFull::kEvictLru;
        const Tables tables = MakeTables(options, 1);
        EXPECT_EQ(tables[0]->options().memory, memory);
        for (int step = 0; step < 5; ++step) {
          MustBeOk(TrainOnSome(tables, optimizer, {0.01f, 0.9f, 0.999f, 1e-8f}, keys, 0.4, &random));
        }
        states.push_back(StateOf(tables));
      }
    }
    ASSERT_EQ(states[0].rows.size(), 100u);
    for (const TableState& state : states) EXPECT_TRUE(state == states[0]) << optimizer;
  }
}

// Host memory is freed by calls that are not ordered with streams. It must stay for work that streams have
// not done yet.
TEST(GpuHostMemoryTest, MemoryIsThereForWorkThatIsLate) {
  const EngineCase engine_case = InHostMemory(GpuCase());
  InlineExecutor executor;
  for (int round = 0; round < 3; ++round) {
    auto group = std::make_unique<ContractGroup>(engine_case, executor,
                                                 std::vector<TableOptions>{ContractOptions("table", 8)});
    // The first slab of a small table is replaced by larger ones.
    for (const int64_t ids : {10, 100, 700}) {
      std::vector<int64_t> bag;
      for (int64_t id = 0; id < ids; ++id) bag.push_back(id);
      const ContractBatch batch = {SumOf(0, {bag})};
      ASSERT_TRUE(group->Lookup(batch).ok());
      ASSERT_TRUE(group->Train(group->RandomGradients(batch, 1), "sgd", {0.1f}).ok());
    }
    // The table is destroyed before its last step has run.
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

}  // namespace
}  // namespace sok
