// Tables of the CUDA engine and of the CPU's hold the same bits after the same steps, with as many ids as a
// training step has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cuda/engine/testing/twin_groups.h"
#include "cuda/programs/testing/test_size.h"

namespace sok {
namespace {

// Rows of 16, 32, 64 ... bytes, and rows that are not a multiple of 16 bytes.
std::vector<int64_t> Dims() {
  return BySize<std::vector<int64_t>>({8, 3, 33}, {8, 16, 32, 64, 128, 256, 100, 33, 1},
                                      {8, 16, 32, 64, 128, 256, 100, 33, 1, 1000});
}

int64_t Bags() { return BySize<int64_t>(8, 4096, 8192); }

// Distributions of ids.
using DrawIds = std::vector<int64_t> (*)(int64_t n, uint64_t seed);

std::vector<int64_t> Uniform(int64_t n, uint64_t seed) {
  return RandomIds(n, BySize<int64_t>(60, 200'000, 5'000'000), seed);
}
std::vector<int64_t> Zipf(int64_t n, uint64_t seed) {
  return ZipfIds(n, BySize<int64_t>(60, 200'000, 5'000'000), 1.05, seed);
}
// One segment of all occurrences.
std::vector<int64_t> Equal(int64_t n, uint64_t /*seed*/) { return std::vector<int64_t>(n, INT64_MIN); }
std::vector<int64_t> Distinct(int64_t n, uint64_t seed) { return DistinctIds(n, seed); }
std::vector<int64_t> Hostile(int64_t n, uint64_t seed) {
  std::vector<int64_t> ids = Zipf(n, seed);
  const std::vector<int64_t> hostile = HostileIds();
  for (size_t i = 0; i < ids.size(); i += 3) ids[i] = hostile[i / 3 % hostile.size()];
  return ids;
}

// `bags` bags of 0 to 9 ids, and occasionally of very many; or of one id if nothing is pooled.
ContractLookup DrawLookup(int table, IdLayout layout, Combiner combiner, int64_t bags, DrawIds draw,
                          uint64_t seed) {
  ContractLookup lookup;
  lookup.spec.table = table;
  lookup.spec.layout = layout;
  lookup.spec.combiner = combiner;
  std::mt19937_64 random(seed);
  std::vector<int64_t> lengths(bags, 1);
  if (lookup.spec.pooled()) {
    for (int64_t& length : lengths) length = static_cast<int64_t>(random() % 10);
    if (bags > 0) lengths[random() % lengths.size()] = bags / 8;
  }
  int64_t total = 0;
  for (const int64_t length : lengths) total += length;
  const std::vector<int64_t> ids = draw(total, seed);
  auto next = ids.begin();
  for (const int64_t length : lengths) {
    lookup.bags.push_back({{next, next + length}, std::vector<double>(static_cast<size_t>(length), 1.0)});
    next += length;
  }
  return lookup;
}

// For each table a pooled lookup and one that is not.
ContractBatch DrawBatch(size_t tables, int64_t bags, DrawIds draw, uint64_t seed) {
  const Combiner combiners[] = {Combiner::kMean, Combiner::kSum, Combiner::kSqrtN};
  ContractBatch batch;
  for (size_t t = 0; t < tables; ++t) {
    const IdLayout pooled = t % 2 == 0 ? IdLayout::kRagged : IdLayout::kSparse;
    const auto table = static_cast<int>(t);
    batch.push_back(DrawLookup(table, pooled, combiners[t % 3], bags, draw, seed + 2 * t));
    batch.push_back(DrawLookup(table, IdLayout::kDense, Combiner::kSum, bags, draw, seed + 2 * t + 1));
  }
  return batch;
}

class TwinsAtSizeTest : public TwinGroupsTest {
 protected:
  void MakeTables(const std::vector<int64_t>& dims) {
    std::vector<TableOptions> options;
    for (const int64_t dim : dims) options.push_back(ContractOptions("dim" + std::to_string(dim), dim));
    Make(options);
  }

  // Training steps, and read-only lookups of other ids.
  void RunSteps(const std::string& optimizer, int64_t bags, DrawIds draw, int steps) {
    for (int step = 0; step < steps; ++step) {
      SCOPED_TRACE(optimizer + ", step " + std::to_string(step));
      const ContractBatch batch = DrawBatch(tables_, bags, draw, static_cast<uint64_t>(step) * 1000);
      ASSERT_NO_FATAL_FAILURE(Lookup(batch, /*training=*/true));
      ASSERT_NO_FATAL_FAILURE(Train(gpu_->RandomGradients(batch, static_cast<uint32_t>(step)), optimizer,
                                    SampleHyperOf(optimizer), /*fused=*/step % 3 != 2));
      ASSERT_NO_FATAL_FAILURE(
          Lookup(DrawBatch(tables_, bags / 4, draw, static_cast<uint64_t>(step) * 1000 + 500), false));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  }

  void RunOptimizers(DrawIds draw) {
    for (const std::string optimizer : {"lazy_adam", "adam", "adagrad"}) {
      MakeTables(Dims());
      ASSERT_NO_FATAL_FAILURE(RunSteps(optimizer, Bags(), draw, BySize(2, 3, 3)));
    }
  }
};

TEST_F(TwinsAtSizeTest, UniformIds) { RunOptimizers(Uniform); }
TEST_F(TwinsAtSizeTest, ZipfIds) { RunOptimizers(Zipf); }
TEST_F(TwinsAtSizeTest, HostileIds) { RunOptimizers(Hostile); }

TEST_F(TwinsAtSizeTest, OneIdAllTheTime) {
  MakeTables(Dims());
  RunSteps("adagrad", Bags(), Equal, 2);
}

TEST_F(TwinsAtSizeTest, NoIdTwice) {
  MakeTables(Dims());
  RunSteps("lazy_adam", Bags(), Distinct, 2);
}

TEST_F(TwinsAtSizeTest, NoIdsAndNoBags) {
  MakeTables({4, 33});
  RunSteps("adam", 0, Uniform, 2);
  ContractBatch batch = DrawBatch(2, 100, Uniform, 1);
  for (ContractLookup& lookup : batch) {
    for (ReferenceBag& bag : lookup.bags) bag = {};
    if (!lookup.spec.pooled()) lookup.bags.clear();
  }
  ASSERT_NO_FATAL_FAILURE(Lookup(batch, true));
  ASSERT_NO_FATAL_FAILURE(Train(gpu_->RandomGradients(batch, 1), "adam", SampleHyperOf("adam"), true));
  ExpectSameContents();
}

TEST_F(TwinsAtSizeTest, EveryOptimizer) {
  int left_out = 0;
  for (const RuleInfo* rule : KnownRules()) {
    // Powers are rounded differently on a device.
    if (!rule->has_same_bits_everywhere(rule->samples[0].data())) {
      ++left_out;
      continue;
    }
    MakeTables({16, 33});
    ASSERT_NO_FATAL_FAILURE(RunSteps(rule->name, BySize<int64_t>(4, 2048, 8192), Zipf, BySize(1, 3, 3)));
  }
  EXPECT_LE(left_out, 1);
}

// Rows that a full table evicts, and ids that wait for admission.
TEST_F(TwinsAtSizeTest, TablesOfAllKinds) {
  const int64_t bags = BySize<int64_t>(6, 1000, 4000);
  Make(TablesOfAllKinds());
  for (uint32_t step = 0; step < BySize(2u, 4u, 6u); ++step) {
    SCOPED_TRACE(step);
    const ContractBatch batch = RandomBatch(step, bags, {16, 3, 1, 65});
    ASSERT_NO_FATAL_FAILURE(Lookup(batch, true));
    ASSERT_NO_FATAL_FAILURE(
        Train(gpu_->RandomGradients(batch, step), "adam", SampleHyperOf("adam"), step % 2 == 0));
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents());
  }
}

// A table that is always full: each step evicts as many rows as it has new ids.
TEST_F(TwinsAtSizeTest, AFullTableEvictsInEveryStep) {
  const int64_t bags = BySize<int64_t>(10, 4000, 20'000);
  for (const OnFull on_full : {OnFull::kEvictLru, OnFull::kEvictLfu}) {
    TableOptions options = ContractOptions("full", 16, /*capacity=*/12 * bags);
    options.on_full = on_full;
    Make({options});
    RunSteps("adagrad", bags, Distinct, 4);
    EXPECT_EQ(gpu_->table(0).Describe().rows, 12 * bags);
  }
}

// Ten runs of the same training give the same bits.

constexpr int kRuns = 10;
constexpr int64_t kIdsOfBag = 8;

int64_t BagsOfRun() { return BySize<int64_t>(4, 4096, 8192); }

ContractBatch ZipfBatch(uint64_t seed) {
  ContractBatch batch;
  for (int table = 0; table < 4; ++table) {
    const std::vector<int64_t> ids =
        ZipfIds(kIdsOfBag * BagsOfRun(), BySize<int64_t>(40, 100'000, 1'000'000), 1.05, seed + 100 * table);
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
    if (table.capacity > 0) table.capacity = kIdsOfBag * BagsOfRun();
    if (table.admission.max_element_size > 0) table.admission.max_element_size = kIdsOfBag * BagsOfRun();
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
