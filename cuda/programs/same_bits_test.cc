// Ten runs of the same training give the same bits.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cuda/engine/testing/twin_groups.h"
#include "cuda/programs/testing/test_size.h"

namespace sok {
namespace {

constexpr int kRuns = 10;
constexpr int64_t kIdsOfBag = 8;

int64_t Bags() { return BySize<int64_t>(4, 4096, 8192); }

ContractBatch ZipfBatch(uint64_t seed) {
  ContractBatch batch;
  for (int table = 0; table < 4; ++table) {
    const std::vector<int64_t> ids =
        ZipfIds(kIdsOfBag * Bags(), BySize<int64_t>(40, 100'000, 1'000'000), 1.05, seed + 100 * table);
    std::vector<std::vector<int64_t>> bags;
    for (auto id = ids.begin(); id != ids.end(); id += kIdsOfBag) bags.emplace_back(id, id + kIdsOfBag);
    batch.push_back(SumOf(table, std::move(bags)));
  }
  return batch;
}

// Tables of all policies, large enough for the ids of one step, so that later steps evict rows.
std::vector<TableOptions> Tables() {
  std::vector<TableOptions> tables = TablesOfAllKinds();
  for (TableOptions& table : tables) {
    if (table.capacity > 0) table.capacity = kIdsOfBag * Bags();
    if (table.admission.max_element_size > 0) table.admission.max_element_size = kIdsOfBag * Bags();
  }
  return tables;
}

struct Trained {
  std::vector<OutputValues> outputs;
  std::vector<TableContents> contents;
};

Trained Train(const EngineCase& engine) {
  InlineExecutor executor;
  ContractGroup group(engine, executor, Tables());
  Trained trained;
  for (uint32_t step = 0; step < 3; ++step) {
    const ContractBatch batch = ZipfBatch(step);
    EXPECT_TRUE(group.Lookup(batch).ok());
    trained.outputs.push_back(group.outputs());
    EXPECT_TRUE(group.Train(group.RandomGradients(batch, step), "adam", SampleHyperOf("adam")).ok());
  }
  for (size_t t = 0; t < group.tables().size(); ++t) {
    trained.contents.push_back(ContentsOf(&group.table(t), group.context()));
  }
  return trained;
}

TEST(SameBitsTest, TenRunsOfTraining) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  const EngineCase engine = GpuCase();
  const Trained first = Train(engine);
  ASSERT_FALSE(first.contents[0].keys.empty());
  for (int run = 1; run < kRuns; ++run) {
    SCOPED_TRACE(run);
    const Trained other = Train(engine);
    ASSERT_EQ(other.outputs, first.outputs);
    ASSERT_EQ(other.contents, first.contents);
  }
}

}  // namespace
}  // namespace sok
